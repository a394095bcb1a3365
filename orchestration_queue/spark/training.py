"""A Spark application that uses a little of everything, so that the classes of all that are loaded.

:func:`~orchestration_queue.spark.build_archive.make_class_archive` runs it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (so does everybody)

__all__ = ["main"]


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def main() -> None:
    """Read, write, join, group, sort, and start a Connect service."""
    spark = (
        SparkSession.builder.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.connect.grpc.binding.port", "0")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as directory:
        numbers = spark.range(1000).select("id", (F.col("id") % 7).alias("key"), F.lit("text").alias("word"))
        numbers.write.partitionBy("key").parquet(f"{directory}/numbers")
        numbers.limit(10).write.json(f"{directory}/lines")
        numbers.limit(10).write.csv(f"{directory}/table", header=True)
        read = spark.read.parquet(f"{directory}/numbers")
        grouped = read.groupBy("key").agg(F.count("*").alias("rows"), F.avg("id")).orderBy("key")
        read.join(grouped, "key").where("id > 3").select("word", "rows").distinct().collect()
        spark.read.json(f"{directory}/lines").union(spark.read.json(f"{directory}/lines")).count()
        spark.read.csv(f"{directory}/table", header=True).createOrReplaceTempView("lines")
        spark.sql("select key, max(id) over (partition by key) from lines").collect()
        numbers.mapInArrow(_same, numbers.schema).count()
        spark.createDataFrame([(1, "a")], "number int, word string").cache().toPandas()
    spark.stop()


if __name__ == "__main__":
    main()
