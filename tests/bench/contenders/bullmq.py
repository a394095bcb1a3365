"""BullMQ's Python port: acknowledges after the handler, keeps every job's record and result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import bullmq

from tests.bench.contenders import QUEUE, Handler, Settle, gathered

__all__ = ["Measured"]

_A_CALL = 1000


class Measured:
    """BullMQ."""

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        asyncio.run(gathered(self.producing(url), jobs, begin, at_once=1))

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        async def add() -> None:
            queue: Any = bullmq.Queue(QUEUE, {"connection": url})
            await queue.getJobCounts()
            begin()
            for first in range(0, jobs, _A_CALL):
                numbers = range(first, min(first + _A_CALL, jobs))
                await queue.addBulk([{"name": "noop", "data": {"at": number}} for number in numbers])
            await queue.close()

        asyncio.run(add())

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[Settle]:
        async def noop(job: Any, _token: str) -> None:
            handler(job.data)

        worker: Any = bullmq.Worker(QUEUE, noop, {"connection": url, "concurrency": concurrency})

        async def settle() -> None:
            while (await reading.getJobCounts("active", "waiting")) != {"active": 0, "waiting": 0}:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        reading: Any = bullmq.Queue(QUEUE, {"connection": url})
        yield settle
        await reading.close()
        await worker.close()

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        queue: Any = bullmq.Queue(QUEUE, {"connection": url})
        await queue.getJobCounts()
        yield lambda data: queue.add("noop", data)
        await queue.close()
