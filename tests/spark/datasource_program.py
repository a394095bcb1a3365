"""Programs that write to a queue with Spark, to be killed by tests.

Run as ``python -m tests.spark.datasource_program stream|shuffle MASTER DIRECTORY URL QUEUE ROWS``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from tests.spark.classic import classic_session
from tests.spark.standalone import QUICKLY

FILES = 10


def break_down(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows on; at its first try, each odd task raises after some of them, and each even one kills its process."""
    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if number == 2 and context.attemptNumber() == 0:
            if context.partitionId() % 2:
                raise RuntimeError("broken on purpose")
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def stream(spark: Any, directory: Path, options: dict[str, str], rows: int) -> None:
    """Write the lines of ten files as jobs, two files to a batch."""
    lines = spark.readStream.option("maxFilesPerTrigger", 2).text(str(directory / "lines"))
    query = (
        lines.mapInArrow(break_down, "value string")
        .writeStream.format("orchestration_queue")
        .options(**options, idColumn="value")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    while (directory / "more-will-come").exists():  # to be killed
        time.sleep(0.1)
    assert sum(progress["numInputRows"] for progress in query.recentProgress) <= rows


def shuffle(spark: Any, directory: Path, options: dict[str, str], rows: int) -> None:
    """Write what comes out of two shuffles, and write it again."""
    frame = spark.range(0, rows, 1, 4).selectExpr("id as value").repartition(3).groupBy("value").count()
    broken = frame.mapInArrow(break_down, "value bigint, count bigint")
    for _ in range(2):
        broken.write.format("orchestration_queue").options(**options, idColumn="value").mode("append").save()


def main(kind: str, master: str, directory: Path, url: str, queue: str, rows: int) -> None:
    """Run one of the two."""
    conf = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
        "spark.executor.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICKLY,
        "spark.executor.extraJavaOptions": QUICKLY,
    }
    (directory / "scratch").mkdir(exist_ok=True)
    with classic_session(directory / "scratch", master, conf) as spark:
        work = {"stream": stream, "shuffle": shuffle}[kind]
        work(spark, directory, {"url": url, "queue": queue, "task": "load", "emitEvents": "false"}, rows)


if __name__ == "__main__":
    _, given_kind, given_master, given_directory, given_url, given_queue, given_rows = sys.argv
    main(given_kind, given_master, Path(given_directory), given_url, given_queue, int(given_rows))
