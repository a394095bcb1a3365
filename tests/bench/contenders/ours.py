"""This package, as shipped: events and metrics on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from orchestration_queue.client import AsyncQueue, NewJob, Queue
from orchestration_queue.options import WorkerOptions
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.bench.contenders import QUEUE, Handler

__all__ = ["Measured"]


class Measured:
    """Ourselves."""

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
