"""ChasquiMQ's own wheel: a Rust engine under a Python handler, acknowledged after it. It needs a Redis 8.6."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import chasquimq
import redis.asyncio

from tests.bench.contenders import QUEUE, Handler, Settle, gathered

__all__ = ["Measured"]

_A_CALL = 1000


class Measured:
    """ChasquiMQ."""

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        asyncio.run(gathered(self.producing(url), jobs, begin, at_once=1))

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        async def add() -> None:
            async with chasquimq.Queue(QUEUE, redis_url=url) as queue:
                begin()
                for first in range(0, jobs, _A_CALL):
                    numbers = range(first, min(first + _A_CALL, jobs))
                    await queue.add_bulk([{"name": "noop", "data": {"at": number}} for number in numbers])

        asyncio.run(add())

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[Settle]:
        async def noop(job: Any) -> None:
            handler(job.data)

        worker: Any = chasquimq.Worker(QUEUE, noop, redis_url=url, concurrency=concurrency)
        running = asyncio.ensure_future(worker.run())

        async def settle() -> None:
            async with redis.asyncio.Redis.from_url(url) as client:
                while await client.xlen(f"{{chasqui:{QUEUE}}}:stream"):  # noqa: ASYNC110  the server reports to no one
                    await asyncio.sleep(0.001)

        yield settle
        await worker.close()
        await running

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        async with chasquimq.Queue(QUEUE, redis_url=url) as queue:
            yield lambda data: queue.add("noop", data)
