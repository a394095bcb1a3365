"""Spark work for the tests: imported by the tests, and by the processes in which it runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestration_queue.spark import SparkOptions, spark_task
from orchestration_queue.spark.options import JOB_PROPERTY
from orchestration_queue.tasks import Tasks

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

tasks = Tasks()


@tasks.task
@spark_task(runtime="process", options=SparkOptions(master="local[2]", conf={"spark.sql.session.timeZone": "UTC"}))
def count_words(spark: SparkSession, words: list[str], day: date) -> dict[str, Any]:
    """Something from each side: typed arguments, a Spark result, and how Spark was set up."""
    print(f"counting {len(words)} words")  # noqa: T201 (what a job prints is part of the test)
    spark.createDataFrame([(word,) for word in words], "word string").createOrReplaceTempView("words")
    spark.sql("create table kept as select * from words")
    rows = spark.sql("select word, count(*) as times from kept group by word order by word").collect()
    return {
        "times": {row["word"]: row["times"] for row in rows},
        "day": day.replace(day=1),
        "job": spark.conf.get(JOB_PROPERTY),
        "name": spark.sparkContext.appName,
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        "ui": spark.sparkContext.uiWebUrl,
        "host": spark.conf.get("spark.driver.host"),
    }


def fail_in_a_worker(spark: SparkSession, word: str) -> None:
    """Raise in a Python function that runs inside Spark's own Python worker."""

    def explode(row: Row) -> None:
        raise ValueError(f"{word} is no number")

    spark.range(1).foreach(explode)


def end_itself(spark: SparkSession) -> None:
    """Be killed, as when the machine is out of memory."""
    assert spark.sparkContext.version
    os.kill(os.getpid(), signal.SIGKILL)


def never_end(spark: SparkSession, sign: str) -> None:
    """Hold a Java process and a Python worker; create the file once both are at work."""

    def wait(batches: Iterable[Any]) -> Iterator[Any]:
        Path(sign).touch()
        time.sleep(600)
        yield from batches

    spark.range(1).mapInArrow(wait, "id long").collect()
