"""A queue's statistics of a day, as its workers count them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.protocol.operations.additions import NewJob
from tests.integration.test_cli import Oq
from tests.waiting import wait_until
from tests.workers import working

DAYS = 86_400


@pytest.fixture
async def queue(server_url: str, queue_name: str) -> AsyncIterator[AsyncQueue]:
    """A queue of the test's own."""
    async with AsyncQueue(queue_name, url=server_url) as made:
        yield made


def handle(job: Any) -> str:
    """Do what the job's name says."""
    if job.name == "bad":
        raise ValueError("no good")
    return "done"


async def run_some(queue: AsyncQueue, raw: redis.Redis, server_url: str, **options: Any) -> None:
    """Let a worker complete three jobs, and fail one with two attempts."""
    await queue.add_bulk([NewJob("good", n) for n in range(3)])
    await queue.add("bad", 1, JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=0)))
    async with working(queue, handle, server_url, **options):
        await wait_until(lambda: raw.zcard(queue.keys.completed) == 3, "the good jobs to complete")
        await wait_until(lambda: raw.zcard(queue.keys.failed) == 1, "the bad job to fail")


async def test_a_worker_counts_what_its_jobs_did(queue: AsyncQueue, raw: redis.Redis, server_url: str) -> None:
    await run_some(queue, raw, server_url)
    today = await queue.statistics()
    if not today.tasks:  # midnight has passed meanwhile
        today = await queue.statistics(today.day - timedelta(days=1))
    good, bad = today.tasks["good"], today.tasks["bad"]
    assert (good.completed, good.failed, good.retried, good.wait.count) == (3, 0, 0, 3)
    assert (bad.completed, bad.failed, bad.retried, bad.wait.count) == (0, 1, 1, 1)
    assert (today.all.completed, today.all.kinds) == (3, {"ValueError": 1})
    assert timedelta(0) <= good.run.p50 <= good.run.p99 <= timedelta(minutes=2)
    (key,) = raw.scan_iter(queue.keys.statistics("*").replace("{", "[{]"))
    assert 29 * DAYS < int(raw.ttl(key)) <= 30 * DAYS
    assert (await queue.statistics(today.day - timedelta(days=40))).tasks == {}

    oq = Oq(server_url)
    shown = oq.json("queue", "stats", queue.name, "--day", today.day.isoformat())
    assert (shown["all"]["completed"], shown["tasks"]["bad"]["retried"]) == (3, 1)
    assert sum(bucket["count"] for bucket in shown["tasks"]["good"]["run"]["histogram"]) == 3
    text = oq("queue", "stats", queue.name, "--day", today.day.isoformat()).stdout
    assert "run, seconds" in text
    assert "█" in text
    assert oq("queue", "stats", queue.name, "--day", "2001-01-01").exit_code == 0
    recent = oq.json("queue", "stats", queue.name, "--days", "30")
    assert (len(recent["days"]), len(recent["last_hour"])) == (30, 60)
    assert [day["kinds"] for day in recent["days"] if day["kinds"]] == [{"ValueError": 1}]
    assert sum(minute["completed"] for minute in recent["last_hour"]) == 3
    assert sum(minute["failed"] for minute in recent["last_hour"]) == 1
    lines = oq("queue", "stats", queue.name, "--days", "30").stdout.splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [["30", "days", "completed"], ["30", "days", "failed"]]
    assert lines[-1].rstrip().endswith("ValueError 1")


async def test_a_worker_that_records_no_metrics_counts_nothing(
    queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    await run_some(queue, raw, server_url, record_metrics=False)
    assert (await queue.statistics()).tasks == {}


async def test_counts_are_sent_once_a_second_and_not_per_job(
    queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    began = datetime.now(UTC)
    calls = _calls(raw)
    await queue.add_bulk([NewJob("good", n) for n in range(500)])
    async with working(queue, handle, server_url):
        await wait_until(lambda: raw.zcard(queue.keys.completed) == 500, "the jobs to complete")
    seconds = (datetime.now(UTC) - began).total_seconds()
    today = await queue.statistics(began.date())
    later = await queue.statistics(datetime.now(UTC).date())
    assert later.all.completed == 500 or today.all.completed + later.all.completed == 500
    # Two fields per bucket and four others per kind in each call, with at most some 20 buckets.
    assert _calls(raw) - calls <= (seconds + 2) * 60


def _calls(raw: redis.Redis) -> int:
    stats: dict[str, Any] = raw.info("commandstats")
    return int(stats.get("cmdstat_hincrbyfloat", {}).get("calls", 0))
