"""Make the archive of Spark's classes: start Spark once, and have Java record what it loaded."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from orchestration_queue.errors import SparkFailedError
from orchestration_queue.spark.environment import ARCHIVE_QUIETLY, class_archive, spark_home
from orchestration_queue.spark.java import java_home
from orchestration_queue.spark.submit.options import SparkSubmit
from orchestration_queue.spark.submit.run import run_submit

__all__ = ["make_class_archive"]

_TRAINING = Path(__file__)
"""The application to start: this file, as a program."""
_LONGEST = timedelta(minutes=15)


def make_class_archive(java: Path | None = None, spark: str | None = None) -> Path:
    """Make the archive, unless it exists. Takes half a minute and 150 MB.

    Args:
        java: The home of Java; default: what :func:`~orchestration_queue.spark.java.java_home` finds.
        spark: The home of Spark; default: that of the installed PySpark.

    Returns:
        The archive's path.

    Raises:
        SparkFailedError: Java did not write it: Java's own archive may be missing, as in trimmed runtimes.
        JavaNotFoundError: No suitable Java was found.
        UsageError: PySpark is not installed.
    """
    java = java or java_home()
    path = class_archive(java, spark or spark_home(os.environ))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path
        for abandoned in path.parent.glob(f".{path.stem}-*"):  # by a maker that was killed
            abandoned.unlink()
        draft = path.with_name(f".{path.stem}-{secrets.token_hex(4)}")
        flags = f"-XX:ArchiveClassesAtExit={draft} {ARCHIVE_QUIETLY}"
        env = {"SPARK_SUBMIT_OPTS": flags} | ({"SPARK_HOME": spark} if spark else {})
        try:
            run_submit(
                _TRAINING,
                (),
                SparkSubmit(master="local[2]", java_home=java, env=env, timeout=_LONGEST),
                log=lambda _: None,
            )
            if not draft.exists():
                raise SparkFailedError(
                    f"The Java in {java} did not write a class archive; set JAVA_HOME to a full JDK, or do without one."
                )
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
    return path


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def train() -> None:
    """Use Spark's common features, so that their classes are loaded: read, write, join, start a Connect service."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812 (so does everybody)

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
    train()
