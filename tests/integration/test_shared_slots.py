"""One process serves several queues with the same slots: in their order or in turn, on one server or several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncQueue, Queue
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.worker import AsyncActiveJob, Polling, SharedSlots, Worker
from tests.processes import worker_process
from tests.waiting import wait_until, wait_until_sync
from tests.workers import QUICK


class Book:
    """A handler that notes whose jobs it was given, and keeps them as long as it is told to."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.running = self.most = 0
        self.may_end = asyncio.Event()

    async def __call__(self, job: AsyncActiveJob) -> None:
        self.queues.append(job.queue)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.may_end.wait()
        finally:
            self.running -= 1


@pytest.fixture
def names(queue_name: str) -> list[str]:
    return [f"{queue_name}-first", f"{queue_name}-second"]


@asynccontextmanager
async def sharing(
    names: Sequence[str],
    book: Book,
    url: str,
    count: int = 1,
    polling: Polling = "ordered",
    options: WorkerOptions = QUICK,
) -> AsyncIterator[list[Worker]]:
    """A worker for each queue, in shared slots, told to leave in the end."""
    slots = SharedSlots(count, polling)
    workers = [Worker(name, book, url=url, options=options, slots=slots) for name in names]
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.wait_for(asyncio.gather(*running), 90)


async def add(url: str, name: str, count: int, options: JobOptions | None = None) -> None:
    async with AsyncQueue(name, url=url) as queue:
        for _ in range(count):
            await queue.add("work", options=options)


async def test_the_second_queue_is_served_when_the_first_has_no_job_ready(
    server_url: str, names: list[str], raw: Any
) -> None:
    book = Book()
    book.may_end.set()
    first, second = names
    await add(server_url, second, 3)
    await add(server_url, first, 5)
    async with sharing(names, book, server_url):
        await wait_until(lambda: len(book.queues) == 8, "all jobs to run")
    assert (book.queues, book.most) == ([first] * 5 + [second] * 3, 1)


async def test_a_job_of_the_first_queue_goes_before_those_that_wait(
    server_url: str, names: list[str], raw: Any
) -> None:
    book = Book()
    first, second = names
    await add(server_url, second, 3)
    # A wait for news that ended by itself would not begin again while there is no place.
    patient = QUICK.model_copy(update={"block": timedelta(minutes=5)})
    async with sharing(names, book, server_url, options=patient) as workers:
        await wait_until(lambda: book.running, "a job of the second queue")
        await wait_until(lambda: workers[0].is_listening, "the first queue to be watched while all slots are taken")
        await add(server_url, first, 1)
        await wait_until(lambda: not workers[0].is_listening, "its job to be noticed")
        assert (book.queues, raw.xlen(f"glide:{{{first}}}:stream")) == ([second], 1)
        book.may_end.set()
        await wait_until(lambda: len(book.queues) == 4, "all jobs to run")
    assert book.queues == [second, first, second, second]


@pytest.mark.parametrize("options", [JobOptions(priority=1), JobOptions(lifo=True), JobOptions(delay=0.2)])
async def test_what_does_not_come_by_the_stream_is_noticed_too(
    server_url: str, names: list[str], raw: Any, options: JobOptions
) -> None:
    book = Book()
    book.may_end.set()
    quick = QUICK.model_copy(update={"block": timedelta(milliseconds=200)})
    async with sharing(names, book, server_url, options=quick) as workers:
        await wait_until(lambda: all(worker.is_listening for worker in workers), "the workers to listen")
        await add(server_url, names[1], 1, options)
        await wait_until(lambda: book.queues == [names[1]], "the job to run")


async def test_queues_take_turns(server_url: str, names: list[str], raw: Any) -> None:
    book = Book()
    book.may_end.set()
    first, second = names
    await add(server_url, first, 6)
    await add(server_url, second, 3)
    async with sharing(names, book, server_url, polling="round-robin"):
        await wait_until(lambda: len(book.queues) == 9, "all jobs to run")
    assert (book.queues, book.most) == ([first, second] * 3 + [first] * 3, 1)


async def test_jobs_that_wait_their_turn_stay_in_their_queue_for_other_workers(
    server_url: str, names: list[str], raw: Any
) -> None:
    book, other = Book(), Book()
    first, second = names
    other.may_end.set()
    async with sharing(names, book, server_url, count=2):
        await add(server_url, first, 2)
        await wait_until(lambda: book.running == 2, "the first queue's jobs to have all slots")
        renewed_from = raw.hget(f"glide:{{{first}}}:job:1", "lastActive")
        await add(server_url, second, 4)
        async with sharing([second], other, server_url):
            await wait_until(lambda: other.queues == [second] * 4, "the other worker to run them")
        await wait_until(
            lambda: raw.hget(f"glide:{{{first}}}:job:1", "lastActive") != renewed_from, "the leases to be renewed"
        )
        book.may_end.set()
        await wait_until(lambda: not book.running, "the jobs to end")
    assert (book.queues, book.most) == ([first, first], 2)


async def test_whoever_leaves_leaves_no_job_behind(server_url: str, names: list[str], raw: Any) -> None:
    book = Book()
    first, second = names
    await add(server_url, first, 2)
    await add(server_url, second, 2)
    patient = QUICK.model_copy(update={"drain": timedelta(minutes=1)})
    async with sharing(names, book, server_url, options=patient):
        await wait_until(lambda: book.running, "a job to run")
        asyncio.get_running_loop().call_later(0.1, book.may_end.set)
    async with AsyncQueue(first, url=server_url) as one, AsyncQueue(second, url=server_url) as two:
        left = await one.counts(), await two.counts()
    assert [(counts.completed, counts.waiting, counts.active) for counts in left] == [(1, 1, 0), (0, 2, 0)]


async def test_each_job_costs_one_trip_and_an_idle_queue_none(server_url: str, names: list[str], raw: Any) -> None:
    book = Book()
    book.may_end.set()
    calm = QUICK.model_copy(
        update={
            "lease": timedelta(hours=1),
            "stalled_interval": timedelta(hours=1),
            "promotion_interval": timedelta(hours=1),
            "flow_interval": timedelta(hours=1),
            "block": timedelta(minutes=1),
        }
    )
    async with sharing(names, book, server_url, options=calm) as workers:
        await wait_until(lambda: all(worker.is_listening for worker in workers), "the workers to listen")
        workers[0].pause()
        await add(server_url, names[0], 100)
        raw.config_resetstat()
        workers[0].resume()
        await wait_until(lambda: len(book.queues) == 100, "all jobs to run")
        await wait_until(lambda: workers[0].is_listening, "the worker to listen again")
        commands = raw.info("commandstats")
    assert 100 <= commands["cmdstat_fcall"]["calls"] <= 105
    # The other queue's wait continued all the time.
    assert commands.get("cmdstat_xread", {"calls": 0})["calls"] <= 1


def test_the_command_serves_many_queues(server_url: str, names: list[str], raw: Any, tmp_path: Any) -> None:
    (tmp_path / "together.py").write_text(
        "import pathlib\n"
        "def handler(job):\n"
        "    with pathlib.Path('order.txt').open('a') as order:\n"
        "        print(job.queue, file=order)\n"
    )
    first, second = names
    with Queue(first, url=server_url) as one, Queue(second, url=server_url) as two:
        for _ in range(3):
            two.add("work")
            one.add("work")
        arguments = ("--queue", second, "--polling", "ordered")
        with worker_process("together:handler", first, server_url, *arguments, directory=tmp_path) as worker:
            wait_until_sync(lambda: one.counts().completed + two.counts().completed == 6, "all jobs to run")
            worker.terminate()
            assert worker.wait(60) == 0
    assert (tmp_path / "order.txt").read_text().split() == [first] * 3 + [second] * 3
