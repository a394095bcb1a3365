"""BullMQ for Python: acknowledges after the handler, keeps finished jobs, renews its locks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bullmq import Queue, Worker

from tests.bench.contenders import QUEUE, Handler, gathered

__all__ = ["Measured"]

_CHUNK = 500


class Measured:
    """BullMQ."""

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        asyncio.run(gathered(self.producing(url), jobs, begin, at_once=1))

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        async def add() -> None:
            queue = Queue(QUEUE, {"connection": url})
            new = [{"name": "noop", "data": {"at": number}, "opts": {}} for number in range(jobs)]
            begin()
            for first in range(0, jobs, _CHUNK):
                await queue.addBulk(new[first : first + _CHUNK])
            await queue.close()

        asyncio.run(add())

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[None]:
        async def noop(job: Any, _token: str) -> None:
            handler(job.data)

        worker = Worker(QUEUE, noop, {"connection": url, "concurrency": concurrency})
        yield
        queue = Queue(QUEUE, {"connection": url})
        while (await queue.getJobCounts("active", "waiting"))["active"]:  # noqa: ASYNC110  the server tells nobody
            await asyncio.sleep(0.001)
        await worker.close()
        await queue.close()

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        queue = Queue(QUEUE, {"connection": url})
        yield lambda data: queue.add("noop", data, {})
        await queue.close()
