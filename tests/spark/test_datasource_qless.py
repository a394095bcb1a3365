"""A qless queue read with Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pyspark.errors import PySparkException

from orchestration_queue.wires.qless import QlessClient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNT = 450


@pytest.fixture
def qless(server_url: str) -> Iterator[QlessClient]:
    """A client of an empty server."""
    with redis.Redis(unix_socket_path=server_url.removeprefix("unix://")) as server:
        server.flushall()
    with QlessClient(url=server_url, worker="me") as client:
        yield client


@pytest.fixture
def read(spark: Any, server_url: str) -> Any:
    """A function that reads the queue `q` with some options."""

    def load(**options: Any) -> Any:
        return spark.read.format("qless").options(**{"url": server_url, **options}).load("q")

    return load


def test_jobs_of_every_state_are_read_once(qless: QlessClient, read: Any) -> None:
    for number in range(COUNT):
        qless.put("q", "app.Import", {"n": number}, tags=["red", "blue"], priority=0.5)
    qless.pop("q", 10)
    qless.put("q", "later", delay=3600, jid="later")
    qless.put("q", "last", depends=["later"], jid="last")
    qless.put("other", "elsewhere")
    for parts in (1, 3):
        rows = read(numPartitions=parts).collect()
        assert len({row.jid for row in rows}) == len(rows)
        assert Counter(row.state for row in rows) == {
            "waiting": COUNT - 10,
            "running": 10,
            "scheduled": 1,
            "depends": 1,
        }
    (last,) = [row for row in rows if row.jid == "last"]
    running = next(row for row in rows if row.state == "running")
    assert (last.dependencies, last.klass, running.worker, running.tags) == ("later", "last", "me", "red,blue")
    assert running.expires_at > running.put_at
    assert running.priority == 0.5
    assert read(columns="klass").where("klass = 'app.Import'").count() == COUNT
    assert len({row.jid for row in read(limit=20).collect()}) == 20
    assert read(limit=COUNT + 3).count() == COUNT + 2


def test_a_limit_reads_no_more_than_it_needs(qless: QlessClient, read: Any, server_url: str) -> None:
    for number in range(COUNT):
        qless.put("q", "app.Import", {"n": number})
    with redis.Redis(unix_socket_path=server_url.removeprefix("unix://")) as server:

        def read_pages() -> int:
            stats: Any = server.info("commandstats")
            return int(stats.get("cmdstat_zrange", {}).get("calls", 0))

        before = read_pages()
        rows = read(limit=5).collect()
        assert read_pages() - before == 1
    assert len(rows) == len({row.jid for row in rows}) == 5
    assert read(limit=COUNT + 1, columns="jid").count() == COUNT
    assert read(limit=1, read="failures").collect() == []


def test_completed_and_failed_jobs_and_statistics_are_read(qless: QlessClient, read: Any) -> None:
    for queue, jid in (("q", "done"), ("other", "elsewhere"), ("q", "broken")):
        qless.put(queue, "K", {"of": jid}, jid=jid)
    jobs = {job.jid: job for job in (*qless.pop("q", 2), *qless.pop("other"))}
    qless.complete(jobs["done"])
    qless.complete(jobs["elsewhere"])
    qless.fail(jobs["broken"], "disk", "it is full")
    (done,) = read(read="completed").collect()
    assert (done.jid, done.queue, done.data) == ("done", "q", '{"of": "done"}')
    assert done.completed_at >= done.put_at
    (failed,) = read(read="failures").collect()
    assert (failed.jid, failed.group, failed.message, failed.worker) == ("broken", "disk", "it is full", "me")
    (day,) = read(read="stats", days=2).collect()
    assert (day.queue, day.waits, day.runs, day.failures, day.failed) == ("q", 2, 1, 1, 1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"read": "results"},
            "read for reading a qless queue must be one of jobs, completed, failures, stats, got 'results'",
        ),
        ({"prefix": "x"}, "Unknown option 'prefix' for reading a qless queue; use queue, url,"),
        ({"columns": "flavor"}, "'jobs' has no column 'flavor'"),
        ({"numPartitions": "0"}, "numPartitions for .* must be an integer from 1 to 10,000, got '0'; pass"),
        ({"limit": "many"}, "must be an integer from 1 to 1,000,000, got 'many'; pass"),
        ({"days": "soon"}, "days for .* must be an integer from 1 to 3,660, got 'soon'; pass"),
        ({"url": "redis://:secret@localhost"}, "must not contain a password"),
    ],
)
def test_wrong_options_are_refused(read: Any, options: dict[str, str], problem: str) -> None:
    with pytest.raises(PySparkException, match=problem):
        read(**options)
