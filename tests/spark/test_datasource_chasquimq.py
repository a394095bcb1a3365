"""A ChasquiMQ queue read and written with Spark."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.errors import PySparkException

from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.wires.chasquimq import ChasquiJob, ChasquiQueue, NewChasquiJob
from tests.chasquimq.working import is_settled, working
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNT = 2_500
LATER_S = 3600.0


@pytest.fixture
def server(server_url: str) -> Iterator[Any]:
    """A plain client that leaves bytes as they are."""
    client = redis.Redis(unix_socket_path=server_url.removeprefix("unix://"), protocol=2)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def queue(server: Any, server_url: str, queue_name: str) -> Iterator[ChasquiQueue]:
    """A client of an empty queue."""
    with ChasquiQueue(queue_name, url=server_url) as client:
        yield client


@pytest.fixture
def read(spark: Any, server_url: str, queue_name: str) -> Any:
    """A function that reads the queue with some options."""

    def load(**options: Any) -> Any:
        return spark.read.format("chasquimq").options(**{"url": server_url, **options}).load(queue_name)

    return load


async def work(queue: ChasquiQueue, url: str, server: Any) -> None:
    """Run all that is ready; jobs named `bad` fail for good."""

    async def handle(job: ChasquiJob) -> Any:
        if job.name == "bad":
            raise UnrecoverableError("out of paper")

    async with working(queue.name, handle, url):
        await wait_until(lambda: is_settled(server, queue.keys), "all jobs to end")


def test_jobs_of_every_state_are_read_once(queue: ChasquiQueue, read: Any, server: Any) -> None:
    queue.add_bulk([NewChasquiJob("ready", {"n": n}) for n in range(COUNT)])
    moment = datetime(2037, 1, 2, 3, 4, 5, tzinfo=UTC)
    # One page holds 1,000 jobs; that many of one time must neither be lost nor come twice.
    queue.add_bulk([NewChasquiJob("later", b"\x00", delay_until=moment) for _ in range(COUNT)])
    group, worker = "default", "w"
    server.xgroup_create(queue.keys.stream, group, "0")
    server.xreadgroup(group, worker, {queue.keys.stream: ">"}, count=10)
    for parts in (1, 3):
        rows = read(numPartitions=parts).collect()
        assert len({row.id for row in rows}) == len(rows) == 2 * COUNT
        assert Counter(row.state for row in rows) == {"ready": COUNT - 10, "running": 10, "delayed": COUNT}
    ready = next(row for row in rows if row.state == "ready")
    later = next(row for row in rows if row.state == "delayed")
    assert (ready.name, ready.attempt, ready.due_at, "n" in json.loads(ready.data)) == ("ready", 0, None, True)
    assert (later.due_at.astimezone(UTC), json.loads(later.data)) == (moment, "AA==")
    assert read(columns="name").where("name = 'later'").count() == COUNT
    assert len({row.id for row in read(limit=20).collect()}) == 20
    assert read(limit=2 * COUNT + 1).count() == 2 * COUNT
    assert read(limit=5, read="dead_letters").collect() == []


def test_a_limit_reads_no_more_than_it_needs(queue: ChasquiQueue, read: Any, server: Any) -> None:
    queue.add_bulk([NewChasquiJob("ready", {"n": n}) for n in range(COUNT)])

    def read_pages() -> int:
        return int(server.info("commandstats").get("cmdstat_xpending", {}).get("calls", 0))

    before = read_pages()
    rows = read(limit=5).collect()
    assert len(rows) == len({row.id for row in rows}) == 5
    assert read_pages() - before <= 1
    assert read(limit=COUNT - 1).count() == COUNT - 1
    assert read(limit=COUNT + 1).count() == COUNT
    assert read(limit=5, read="dead_letters").collect() == []


def test_a_stream_has_no_limit(spark: Any, server_url: str, queue_name: str) -> None:
    reading = spark.readStream.format("chasquimq").options(url=server_url, read="events", limit=5).load(queue_name)
    with pytest.raises(PySparkException, match="use maxRowsPerTrigger for a stream"):
        reading.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(100)


async def test_events_and_dead_letters_are_read(queue: ChasquiQueue, read: Any, server: Any, server_url: str) -> None:
    good, bad = queue.add_bulk([NewChasquiJob("good", 1), NewChasquiJob("bad", {"page": 2})])
    server.xadd(queue.keys.stream, {"d": b"\xc1"})
    await work(queue, server_url, server)
    events = await asyncio.to_thread(lambda: read(read="events").collect())
    assert [row.event for row in events if row.job_id == good.id] == ["active", "completed"]
    assert {(row.job_name, row.fields["attempt"]) for row in events if row.event == "completed"} == {("good", "1")}
    letters = await asyncio.to_thread(lambda: read(read="dead_letters").collect())
    found = {row.reason: (row.job_id, row.name, row.detail, row.data) for row in letters}
    assert found["unrecoverable"] == (bad.id, "bad", "out of paper", '{"page": 2}')
    assert found["decode_failed"][0] is None
    assert found["decode_failed"][3] is None


def test_rows_become_jobs_once(queue: ChasquiQueue, spark: Any, server_url: str) -> None:
    frame = spark.createDataFrame(
        [(n, f"user {n}", float(n % 2) * LATER_S) for n in range(20)], "id long, who string, wait double"
    )
    options = {
        "url": server_url,
        "queue": queue.name,
        "task": "mail",
        "idColumn": "id",
        "delayColumn": "wait",
        "attempts": 2,
    }
    for _ in range(2):
        frame.write.format("chasquimq").options(**options).mode("append").save()
    assert (queue.counts().ready, queue.counts().delayed) == (10, 10)
    assert sorted(job.id for job in queue.list_jobs(100)) == sorted(f"mail-{n}" for n in range(0, 20, 2))
    assert queue.list_jobs(1)[0].data in [{"id": n, "who": f"user {n}"} for n in range(0, 20, 2)]


async def test_events_are_followed_as_a_stream(
    queue: ChasquiQueue, spark: Any, server: Any, server_url: str, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def follow() -> None:
        options = {"url": server_url, "queue": queue.name, "read": "events", "startingOffsets": "earliest"}
        query = (
            spark.readStream.format("chasquimq")
            .options(**options)
            .load()
            .where("event = 'completed'")
            .writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(100)
        assert query.exception() is None

    added = []
    for _ in range(2):
        added += queue.add_bulk([NewChasquiJob("good", n) for n in range(5)])
        await work(queue, server_url, server)
        await asyncio.to_thread(follow)
    assert sorted(row.job_id for row in seen) == sorted(job.id for job in added)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"read": "results"},
            "read for reading a ChasquiMQ queue must be one of jobs, events, dead_letters, got 'results'",
        ),
        ({"prefix": "x"}, "Unknown option 'prefix' for reading a ChasquiMQ queue; use queue, url,"),
        ({"states": "ready"}, "Unknown option 'states' for reading a ChasquiMQ queue; use queue, url,"),
        ({"columns": "flavor"}, "'jobs' has no column 'flavor'"),
        ({"numPartitions": "0"}, "numPartitions for .* must be an integer from 1 to 10,000, got '0'; pass"),
        ({"limit": "0"}, "must be an integer from 1 to 1,000,000, got '0'; pass"),
        ({"url": "redis://:secret@localhost"}, "must not contain a password"),
    ],
)
def test_wrong_options_are_refused(read: Any, options: dict[str, str], problem: str) -> None:
    with pytest.raises(PySparkException, match=problem):
        read(**options)
