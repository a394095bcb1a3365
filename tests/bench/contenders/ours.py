"""This package, as shipped: acknowledges after the handler, renews leases, keeps results, events and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from orchestration_queue.client import AsyncQueue, NewJob, Queue
from orchestration_queue.options import Batch, WorkerOptions
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Worker
from tests.bench.contenders import QUEUE, Handler, Settle

__all__ = ["Batched", "Measured", "Threads"]


class Measured:
    """Ourselves, with coroutines as handlers."""

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

    def worker(self, url: str, concurrency: int, handler: Handler) -> Worker:
        """Return the worker to measure."""

        async def handle(job: AsyncActiveJob) -> None:
            handler(job.data)

        return Worker(QUEUE, handle, url=url, options=WorkerOptions(concurrency=concurrency))

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[Settle]:
        worker = self.worker(url, concurrency, handler)
        running = asyncio.ensure_future(worker.run())

        async def settle() -> None:
            worker.stop()
            await running

        yield settle
        await settle()

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        async with AsyncQueue(QUEUE, url=url) as queue:
            yield lambda data: queue.add("noop", data)

    @contextmanager
    def offering(self, url: str) -> Iterator[Callable[[list[Any]], object]]:
        """Yield a function that adds jobs that are due."""
        with Queue(QUEUE, url=url) as queue:
            yield lambda due: queue.add_bulk([NewJob("noop", data) for data in due])


class Threads(Measured):
    """Ourselves, with plain functions as handlers, which run in threads."""

    def worker(self, url: str, concurrency: int, handler: Handler) -> Worker:
        def handle(job: ActiveJob) -> None:
            handler(job.data)

        return Worker(QUEUE, handle, url=url, options=WorkerOptions(concurrency=concurrency))


class Batched(Measured):
    """Ourselves, with handlers of 100 jobs; `concurrency` is how many such calls run at a time."""

    def worker(self, url: str, concurrency: int, handler: Handler) -> Worker:
        async def handle(jobs: list[AsyncActiveJob]) -> None:
            for job in jobs:
                handler(job.data)

        return Worker(QUEUE, handle, url=url, options=WorkerOptions(concurrency=concurrency, batch=Batch(size=100)))
