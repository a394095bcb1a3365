"""The tasks of 08_spark_task.py, in a separate module, because Spark's processes import what they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue import Tasks
from orchestration_queue.spark import spark_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

tasks = Tasks(queue="etl")


@tasks.task
@spark_task
def squares(spark: SparkSession, count: int) -> DataFrame:
    """Return a DataFrame: it is kept as Parquet, and the result says where, how many rows, and which columns."""
    return spark.range(count).selectExpr("id * id as square")


@tasks.task
@spark_task
def total(_: SparkSession, squares: DataFrame) -> int:
    """Take it by the name of the node that made it; it is read from where it was kept."""
    return int(squares.agg({"square": "sum"}).collect()[0][0])
