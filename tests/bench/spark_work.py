"""The Spark work that is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue.spark import spark_task
from orchestration_queue.tasks import Tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["smallest", "tasks"]

tasks = Tasks()


@tasks.task
@spark_task(runtime="connect")
def smallest(spark: SparkSession) -> int:
    """The smallest query there is."""
    return len(spark.range(1).collect())
