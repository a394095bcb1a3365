"""An idle worker that polls nothing starts at once what is due, and stops what is cancelled: by signals.

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
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.schedules import Every
from orchestration_queue.server import AsyncConnection
from orchestration_queue.states import FailureKind
from orchestration_queue.worker import AsyncActiveJob, Worker, WorkerEvent, WorkerEventType
from orchestration_queue.worker.queue_io import QueueIO
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


async def test_a_retry_that_falls_due_while_the_worker_looks_for_others_is_on_time(
    queue: AsyncQueue, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    may_look, has_looked, may_go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def fail_once(job: AsyncActiveJob) -> int:
        if job.attempt == 1:
            raise ValueError("again")
        return job.attempt

    def note(event: WorkerEvent) -> None:
        if event.job is not None and event.type is WorkerEventType.FAILED:
            failed.append(event.job.id)

    async with idle(queue, fail_once, server_url, concurrency=4) as worker:
        worker.subscribe(note)
        tick = worker.io.tick_and_watch

        async def look_long(*args: Any, **options: Any) -> Any:
            await may_look.wait()
            found = await tick(*args, **options)
            has_looked.set()
            await may_go_on.wait()
            return found

        monkeypatch.setattr(worker.io, "tick_and_watch", look_long)
        retried = JobOptions(attempts=2, backoff={"type": "fixed", "delay": 0.2})
        first = await queue.add("work", 1, retried)
        await wait_until(lambda: first.id in failed, "the first job to fail")
        may_look.set()
        await asyncio.wait_for(has_looked.wait(), 60)
        second = await queue.add("work", 2, retried)
        await wait_until(lambda: second.id in failed, "the second job to fail")
        may_go_on.set()
        assert [await job.wait(timeout=30) for job in (first, second)] == [2, 2]


async def test_a_wait_that_is_ended_on_its_way_to_the_server_ends_when_it_is_there(
    queue: AsyncQueue, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncConnection(server_url) as calls, AsyncConnection(server_url) as waits:
        io = QueueIO(queue.keys, "idle", calls, waits, WorkerOptions())
        await io.join()
        name_wait = io.waker.prepare

        async def name_and_end() -> None:
            await name_wait()
            assert not await io.waker.wake(), "the wait is there already"

        monkeypatch.setattr(io.waker, "prepare", name_and_end)
        waiting = asyncio.ensure_future(io.listen(1, 300_000))
        async with asyncio.timeout(60):
            while not await io.waker.wake():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (await waiting).deliveries == []


async def test_a_signal_from_before_the_worker_reads_signals_is_read(
    queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    async with AsyncConnection(server_url) as calls, AsyncConnection(server_url) as waits:
        io = QueueIO(queue.keys, "fresh", calls, waits, WorkerOptions())
        await io.set_clock()
        await queue.add("work", options=JobOptions(lifo=True))
        assert len(await io.read_signals()) == 1
        await io.aclose()


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
        await wait_until(lambda: blocked(raw) == {"xread", "xreadgroup"}, "both reads to block on the server")
        await wait_until(lambda: raw.keys(queue.keys.worker("*")), "the worker to have registered")
        seconds = [await calls_of_a_second(raw) for _ in range(3)]  # in the first, its loops may still begin
    assert min(sum(calls.values()) for calls in seconds) <= 2, seconds


async def calls_of_a_second(raw: redis.Redis) -> dict[str, int]:
    """The calls that concern queues and that the server answered in the next second."""
    raw.config_resetstat()
    await asyncio.sleep(1)
    stats: Any = raw.info("commandstats")
    return {name: stat["calls"] for name, stat in stats.items() if name.startswith(("cmdstat_x", "cmdstat_fcall"))}


def blocked(raw: redis.Redis) -> set[str]:
    """The commands in which clients wait on the server."""
    return {client["cmd"] for client in raw.client_list() if "b" in client["flags"]}
