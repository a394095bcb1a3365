"""What reading and writing a queue with Spark costs, against the ways to do it by hand, and how late a stream is.

Run as ``python -m tests.bench.spark_source``; prints JSON. Nothing else should run on the machine, where Spark and the
server share the processors: read the server's microseconds for what one server can bear at most.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyspark

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.options import JobOptions
from tests.bench.server import Meter, server
from tests.spark.classic import classic_session
from tests.waiting import wait_until_sync

_NAIVE_SHARE = 20
"""The naive way gets this part of the rows, or it would take minutes."""


def one_by_one(url: str, queue: str) -> Callable[[Iterable[Any]], None]:
    """The naive version: one job per row, and one exchange per job."""

    def add(rows: Iterable[Any]) -> None:
        with Queue(queue, url=url) as clients:
            for row in rows:
                clients.add("load", row.asDict(), JobOptions(job_id=f"load-{row.id}"))

    return add


def in_bulk(url: str, queue: str) -> Callable[[Iterable[Any]], None]:
    """What one would write next: all rows of a partition in calls for a thousand."""

    def add(rows: Iterable[Any]) -> None:
        with Queue(queue, url=url) as clients:
            clients.add_bulk([NewJob("load", row.asDict(), JobOptions(job_id=f"load-{row.id}")) for row in rows])

    return add


class Bench:
    """One session, one server, and figures per job.

    Args:
        spark: The session.
        url: The server.
        rows: How many rows.
    """

    def __init__(self, spark: Any, url: str, rows: int) -> None:
        self._spark, self._url, self._rows = spark, url, rows
        self._options = {"url": url, "queue": "bench"}

    def _frame(self, rows: int) -> Any:
        return self._spark.range(0, rows, 1, 2).selectExpr(
            "id", "concat('customer-', id % 1000) as customer", "id * 1.5D as amount"
        )

    def _cost(self, rows: int, work: Callable[[], object], *, empty: bool) -> dict[str, float]:
        with Meter(self._url) as meter:
            if empty:
                meter.reset()
            meter.begin()
            work()
            cost = meter.end().per_job(rows)
        return {name: cost[name] for name in ("jobs_per_s", "server_us", "commands")}

    def _save(self, **options: Any) -> None:
        options = {**self._options, "task": "load", "idColumn": "id", **options}
        self._frame(self._rows).write.format("orchestration_queue").options(**options).mode("append").save()

    def writes(self) -> dict[str, object]:
        """Rows to jobs, in each way."""
        self._save()
        few = self._rows // _NAIVE_SHARE
        naive = self._frame(few).foreachPartition
        return {
            "data_source": self._cost(self._rows, self._save, empty=True),
            "data_source_again": self._cost(self._rows, self._save, empty=False),
            "data_source_no_events": self._cost(self._rows, lambda: self._save(emitEvents="false"), empty=True),
            "foreach_partition_bulk": self._cost(
                self._rows, lambda: self._frame(self._rows).foreachPartition(in_bulk(self._url, "bench")), empty=True
            ),
            "foreach_partition_naive": self._cost(few, lambda: naive(one_by_one(self._url, "bench")), empty=True),
        }

    def _load(self, **options: Any) -> None:
        frame = self._spark.read.format("orchestration_queue").options(**self._options, **options).load()
        frame.write.format("noop").mode("overwrite").save()

    def reads(self) -> dict[str, object]:
        """Jobs to rows."""
        self._save()
        self._load()
        return {
            "all_columns": self._cost(self._rows, self._load, empty=False),
            "id_and_data": self._cost(self._rows, lambda: self._load(columns="id,data"), empty=False),
        }

    def stream_latency_s(self, events: int) -> float:
        """Median seconds from a job's adding to its event's row in a running query."""
        seen: dict[str, float] = {}

        def note(batch: Any, _: int) -> None:
            seen.update((row.job_id, time.perf_counter()) for row in batch.collect())

        reader = self._spark.readStream.format("orchestration_queue").options(
            **self._options, read="events", startingOffsets="earliest"
        )
        late = []
        with tempfile.TemporaryDirectory() as checkpoint, Queue("bench", url=self._url) as queue:
            query = reader.load().writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start()
            for number in range(events + 5):
                began, job = time.perf_counter(), queue.add("late", {}, JobOptions(job_id=f"late{number}"))
                wait_until_sync(lambda wanted=job.id: wanted in seen, "the row", 60)  # type: ignore[misc]
                late.append(seen[job.id] - began)
            query.stop()
        return round(statistics.median(late[5:]), 3)


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark_source", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows to write and read (default 200,000)")
    parser.add_argument("--events", type=int, default=20, help="events to wait for (default 20)")
    arguments = parser.parse_args()
    conf = {"spark.log.level": "OFF"}
    with (
        server() as url,
        tempfile.TemporaryDirectory() as scratch,
        classic_session(Path(scratch), "local[2]", conf) as spark,
    ):
        bench = Bench(spark, url, arguments.rows)
        figures = {
            "write": bench.writes(),
            "read": bench.reads(),
            "stream_latency_s": bench.stream_latency_s(arguments.events),
        }
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "pyspark": pyspark.__version__}
    print(json.dumps({"machine": machine, "arguments": vars(arguments), **figures}, indent=2))


if __name__ == "__main__":
    main()
