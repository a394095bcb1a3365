"""An idle worker that looks at nothing by itself starts at once what is due, and stops what is cancelled: by signals.

The worker here waits an hour between two looks, so that each test would run out of time without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.options import JobOptions
from orchestration_queue.schedules import Every
from orchestration_queue.states import FailureKind
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.waiting import wait_until
from tests.workers import working

HOUR = timedelta(hours=1)


@pytest.fixture
async def queue(server_url: str, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@asynccontextmanager
async def idle(queue: AsyncQueue, handler: Any, url: str, **options: Any) -> AsyncIterator[Worker]:
    """A worker that waits for its first job, and looks for nothing by itself."""
    calm: dict[str, Any] = {"promotion_interval": HOUR, "stalled_interval": HOUR, "block": timedelta(minutes=5)}
    async with working(queue, handler, url, **{**calm, **options}) as worker:
        await wait_until(lambda: worker.is_listening, "the worker to be idle")
        yield worker


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(delay=0.05),
        JobOptions(priority=3),
        JobOptions(lifo=True),
        JobOptions(delay=0.05, priority=2),
        JobOptions(delay=0.05, job_id="mine"),
    ],
    ids=["delayed", "prioritized", "lifo", "delayed and prioritized", "with an id"],
)
async def test_a_job_that_no_stream_entry_announces_starts_at_once(
    queue: AsyncQueue, server_url: str, options: JobOptions
) -> None:
    async with idle(queue, lambda job: job.data, server_url):
        assert await (await queue.add("work", 1, options)).wait(timeout=30) == 1
        (job,) = await queue.add_bulk([NewJob("work", 2, options.model_copy(update={"job_id": None}))])
        assert await job.wait(timeout=30) == 2


async def test_retries_follow_their_backoff(queue: AsyncQueue, server_url: str) -> None:
    async def fail_twice(job: AsyncActiveJob) -> int:
        if job.attempt < 3:
            raise ValueError("again")
        return job.attempt

    async with idle(queue, fail_twice, server_url):
        job = await queue.add("work", 1, JobOptions(attempts=3, backoff={"type": "fixed", "delay": 0.05}))
        assert await job.wait(timeout=30) == 3


async def test_a_job_that_puts_itself_off_goes_on_in_time(queue: AsyncQueue, server_url: str) -> None:
    async def put_off(job: AsyncActiveJob) -> str:
        if job.data == "first":
            job.move_to_delayed(timedelta(milliseconds=50), data="second")
        return str(job.data)

    async with idle(queue, put_off, server_url):
        assert await (await queue.add("work", "first")).wait(timeout=30) == "second"


async def test_a_failed_job_that_is_retried_starts_at_once(
    queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    attempts = []

    def fail_once(job: Any) -> int:
        attempts.append(job.id)
        if len(attempts) == 1:
            raise ValueError("no")
        return len(attempts)

    async with idle(queue, fail_once, server_url):
        job = await queue.add("work", 1)
        await wait_until(lambda: len(attempts) == 1, "the job to run")
        await wait_until(lambda: raw.hget(queue.keys.job(job.id), "state") == "failed", "the job to fail")
        await job.retry()
        assert await job.wait(timeout=30) == 2


async def test_a_schedule_runs_when_it_is_due(queue: AsyncQueue, server_url: str) -> None:
    runs: list[Any] = []
    async with idle(queue, lambda job: runs.append(job.data), server_url):
        await queue.schedulers.upsert("often", Every(timedelta(milliseconds=200)))
        await wait_until(lambda: len(runs) >= 2, "the schedule to run twice", seconds=30)


async def test_a_cancel_reaches_a_running_job_whatever_its_lease(
    queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    started = asyncio.Event()

    async def endless(job: AsyncActiveJob) -> None:
        started.set()
        await asyncio.Event().wait()

    async with idle(queue, endless, server_url, lease=HOUR):
        job = await queue.add("work", 1)
        await asyncio.wait_for(started.wait(), 30)
        await job.cancel()
        await wait_until(lambda: raw.hget(queue.keys.job(job.id), "state") == "failed", "the job to end", seconds=30)
    assert raw.hget(queue.keys.job(job.id), "failureKind") == FailureKind.CANCELLED


async def test_a_cancel_of_a_former_run_spares_the_next(queue: AsyncQueue, server_url: str) -> None:
    async with idle(queue, lambda job: job.data, server_url) as worker:
        worker._cancel_signalled("1", 5)  # long before any job of this test ran
        job = await queue.add("work", "done")
        assert await job.wait(timeout=30) == "done"


async def test_an_idle_worker_asks_its_server_little(queue: AsyncQueue, raw: redis.Redis, server_url: str) -> None:
    async with idle(queue, lambda job: job.data, server_url):
        raw.config_resetstat()
        await asyncio.sleep(1)
        stats: Any = raw.info("commandstats")
    calls = {name: stat["calls"] for name, stat in stats.items() if name.startswith(("cmdstat_x", "cmdstat_fcall"))}
    assert sum(calls.values()) <= 2, calls
