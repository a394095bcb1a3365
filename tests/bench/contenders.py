"""Who is measured: ourselves, and the fastest pure Python queue we know of, on the same server in the same run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import redis.asyncio
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from orchestration_queue.client import AsyncQueue, NewJob, Queue
from orchestration_queue.options import WorkerOptions
from orchestration_queue.worker import AsyncActiveJob, Worker

__all__ = ["CONTENDERS", "Contender", "Ours", "Taskiq"]

QUEUE = "bench"
Handler = Callable[[Any], None]
"""Given each job's payload as the job starts."""


class Contender(Protocol):
    """A queue, as far as it is measured."""

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        """Add jobs, each confirmed before the next; calls ``begin`` when connected."""

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        """Add jobs in the fastest way there is."""

    @asynccontextmanager
    def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[None]:
        """Run a worker; it has told every outcome when the block is left."""

    @asynccontextmanager
    def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        """A coroutine function that adds one job."""


class Ours:
    """This package, as shipped: events and metrics on."""

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        with Queue(QUEUE, url=url) as queue:
            queue.counts()
            begin()
            for number in range(jobs):
                queue.add("noop", {"at": number})

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        with Queue(QUEUE, url=url) as queue:
            queue.counts()
            new = [NewJob("noop", {"at": number}) for number in range(jobs)]
            begin()
            queue.add_bulk(new)

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[None]:
        async def handle(job: AsyncActiveJob) -> None:
            handler(job.data)

        worker = Worker(QUEUE, handle, url=url, options=WorkerOptions(concurrency=concurrency))
        running = asyncio.ensure_future(worker.run())
        yield
        worker.stop()
        await running

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        async with AsyncQueue(QUEUE, url=url) as queue:
            yield lambda data: queue.add("noop", data)


class Taskiq:
    """taskiq with its stream broker: acknowledges after the handler, keeps no results, events or metrics."""

    def _broker(self, url: str, handler: Handler = lambda _: None) -> tuple[RedisStreamBroker, Any]:
        broker = RedisStreamBroker(url, queue_name=QUEUE, xread_block=200)

        async def noop(data: Any) -> None:
            handler(data)

        return broker, broker.task(task_name="noop")(noop)

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        async def add() -> None:
            async with self.producing(url) as produce:
                begin()
                for number in range(jobs):
                    await produce({"at": number})

        asyncio.run(add())

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        async def add() -> None:
            async with self.producing(url) as produce:
                begin()
                for first in range(0, jobs, 100):
                    await asyncio.gather(*(produce({"at": first + number}) for number in range(100)))

        asyncio.run(add())

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[None]:
        broker, _ = self._broker(url, handler)
        broker.is_worker_process = True
        await broker.startup()
        running = asyncio.ensure_future(run_receiver_task(broker, max_async_tasks=concurrency))
        yield
        async with redis.asyncio.Redis.from_url(url) as client:
            while (await _pending(client, broker.consumer_group_name)) > 0:  # noqa: ASYNC110  the server tells nobody
                await asyncio.sleep(0.001)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await broker.shutdown()

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        broker, task = self._broker(url)
        await broker.startup()
        yield task.kiq
        await broker.shutdown()


async def _pending(client: redis.asyncio.Redis, group: str) -> int:
    summary: Any = await client.xpending(QUEUE, group)
    return int(summary["pending"])


CONTENDERS: dict[str, Contender] = {"ours": Ours(), "taskiq": Taskiq()}
