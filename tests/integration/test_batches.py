"""Batches: several jobs to one call, each with its own lease, attempts and result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncJob, AsyncQueue, NewJob
from orchestration_queue.errors import JobFailedError, UsageError
from orchestration_queue.options import Backoff, Batch, JobOptions, WorkerOptions
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Worker, WorkerEvent, WorkerEventType
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def add(queue: AsyncQueue, count: int, **options: Any) -> list[AsyncJob]:
    return await queue.add_bulk([NewJob("n", number, JobOptions(**options)) for number in range(count)])


async def test_a_backlog_comes_in_full_batches_and_each_job_gets_its_own_result(
    queue: AsyncQueue, server_url: str
) -> None:
    sizes: list[int] = []

    async def double(jobs: list[AsyncActiveJob]) -> list[int]:
        sizes.append(len(jobs))
        return [job.data * 2 for job in jobs]

    jobs = await add(queue, 10)
    async with working(queue, double, server_url, concurrency=1, batch=Batch(size=5)):
        assert [await job.wait(SOON) for job in jobs] == [2 * number for number in range(10)]
    assert sizes == [5, 5]


async def test_a_plain_function_takes_its_batch_in_a_thread(queue: AsyncQueue, server_url: str) -> None:
    def names(jobs: list[ActiveJob]) -> list[str]:
        return [threading.current_thread().name for _ in jobs]

    jobs = await add(queue, 3)
    async with working(queue, names, server_url, batch=Batch(size=3)):
        assert all([(await job.wait(SOON)).startswith("oq-job") for job in jobs])


async def test_a_batch_waits_for_more_until_its_time_is_up(queue: AsyncQueue, server_url: str) -> None:
    loop = asyncio.get_running_loop()
    starts, calls = list[float](), list[tuple[float, int]]()

    async def note(jobs: list[AsyncActiveJob]) -> None:
        calls.append((loop.time(), len(jobs)))

    def hear(event: WorkerEvent) -> None:
        if event.type is WorkerEventType.ACTIVE:
            starts.append(loop.time())

    jobs = await add(queue, 2)
    batch = Batch(size=3, timeout=timedelta(seconds=0.4))
    async with working(queue, note, server_url, concurrency=1, batch=batch) as worker:
        worker.subscribe(hear)
        assert [await job.wait(SOON) for job in jobs] == [None, None]
    ((called, size),) = calls
    assert size == 2
    assert called - min(starts) >= 0.4


async def test_a_job_that_comes_later_fills_a_batch_that_waits(queue: AsyncQueue, server_url: str) -> None:
    sizes: list[int] = []

    async def note(jobs: list[AsyncActiveJob]) -> None:
        sizes.append(len(jobs))

    batch = Batch(size=2, timeout=timedelta(minutes=2))
    async with working(queue, note, server_url, concurrency=1, batch=batch) as worker:
        first = await queue.add("n", 1)
        await wait_until(lambda: worker.running == 1, "the first job to wait for its batch", 60)
        second = await queue.add("n", 2)
        assert [await first.wait(SOON), await second.wait(SOON)] == [None, None]
    assert sizes == [2]


async def test_an_exception_in_a_results_place_fails_that_job_alone(queue: AsyncQueue, server_url: str) -> None:
    async def picky(jobs: list[AsyncActiveJob]) -> list[Any]:
        return [ValueError("odd") if job.data % 2 else job.attempt for job in jobs]

    jobs = await add(queue, 4, attempts=2, backoff=Backoff(type="fixed", delay=timedelta(0)))
    async with working(queue, picky, server_url, batch=Batch(size=4)):
        assert [await job.wait(SOON) for job in jobs[::2]] == [1, 1]
        for job in jobs[1::2]:
            with pytest.raises(JobFailedError, match="ValueError: odd"):
                await job.wait(SOON)
            assert job.record.attempts_made == 2


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ([1], "returned 1 results for 2 jobs; return one per job"),
        ("ab", "returned a str; return a list with a result per job"),
        ({"a": 1}, "returned a dict; return a list with a result per job"),
        (RuntimeError("all of them"), "RuntimeError: all of them"),
    ],
)
async def test_a_wrong_answer_fails_the_whole_batch(
    queue: AsyncQueue, server_url: str, results: Any, reason: str
) -> None:
    async def answer(_: Sequence[AsyncActiveJob]) -> Any:
        if isinstance(results, Exception):
            raise results
        return results

    jobs = await add(queue, 2)
    async with working(queue, answer, server_url, concurrency=1, batch=Batch(size=2)):
        for job in jobs:
            with pytest.raises(JobFailedError, match=reason):
                await job.wait(SOON)


async def test_a_jobs_own_time_limit_ends_only_its_own_wait(queue: AsyncQueue, server_url: str) -> None:
    let_go = asyncio.Event()

    async def slow(jobs: list[AsyncActiveJob]) -> list[bool]:
        await let_go.wait()
        return [job.should_stop for job in jobs]

    hasty, patient = await queue.add_bulk([NewJob("n", 1, JobOptions(timeout=0.1)), NewJob("n", 2)])
    async with working(queue, slow, server_url, batch=Batch(size=2)):
        with pytest.raises(JobFailedError, match="Job timeout exceeded"):
            await hasty.wait(SOON)
        let_go.set()
        assert await patient.wait(SOON) is False


async def test_when_all_its_jobs_are_given_up_the_handler_is_cancelled(queue: AsyncQueue, server_url: str) -> None:
    cancelled: list[bool] = []

    async def endless(_: list[AsyncActiveJob]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    jobs = await add(queue, 2, timeout=0.1)
    async with working(queue, endless, server_url, batch=Batch(size=2)):
        for job in jobs:
            with pytest.raises(JobFailedError, match="Job timeout exceeded"):
                await job.wait(SOON)
        await wait_until(lambda: cancelled, "the handler to be cancelled")


async def test_each_kind_of_job_has_batches_of_its_own(queue: AsyncQueue, server_url: str) -> None:
    seen: list[tuple[str, int]] = []

    def router(name: str) -> Any:
        async def note(jobs: list[AsyncActiveJob]) -> None:
            seen.extend((name, len(jobs)) for _ in jobs if {job.name for job in jobs} == {name})

        return note

    class Router:
        def __init__(self) -> None:
            self.known = {name: router(name) for name in ("a", "b")}

        def handler(self, name: str) -> Any:
            return self.known[name]

    jobs = await queue.add_bulk([NewJob("ab"[number % 2], number) for number in range(8)])
    batch = Batch(size=4, timeout=timedelta(minutes=2))
    async with working(queue, Router(), server_url, concurrency=2, batch=batch):
        for job in jobs:
            await job.wait(SOON)
    assert sorted(seen) == [("a", 4)] * 4 + [("b", 4)] * 4


def test_tasks_are_not_handed_batches() -> None:
    with pytest.raises(UsageError, match="a task takes the arguments of one; pass a function of a list of jobs"):
        Worker("q", Tasks(), options=WorkerOptions(batch=Batch(size=2)))


async def test_each_job_of_a_batch_has_its_own_steps_waits_and_calls(queue: AsyncQueue, server_url: str) -> None:
    async def one(job: AsyncActiveJob) -> Any:
        if job.name == "part":
            return 10
        number = await job.step("read", lambda: job.data)
        if number == 0:
            return number
        if number == 1:
            await job.sleep("nap", 0.01)
            return number
        return number + await job.call("ten", "part")

    async def work(jobs: list[AsyncActiveJob]) -> list[Any]:
        return await asyncio.gather(*(one(job) for job in jobs), return_exceptions=True)

    jobs = await add(queue, 4)
    async with working(queue, work, server_url, batch=Batch(size=4, timeout=0.01)):
        assert [await job.wait(SOON) for job in jobs] == [0, 1, 12, 13]


async def test_the_end_of_one_jobs_run_is_not_that_of_its_batch(queue: AsyncQueue, server_url: str) -> None:
    async def work(jobs: list[AsyncActiveJob]) -> None:
        for job in jobs:
            await job.wait_for("it")

    jobs = await add(queue, 2)
    async with working(queue, work, server_url, batch=Batch(size=2)):
        for job in jobs:
            with pytest.raises(JobFailedError, match="ended the run of one of its jobs"):
                await job.wait(SOON)
