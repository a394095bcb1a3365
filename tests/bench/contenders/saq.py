"""SAQ: acknowledges after the handler, keeps results for ten minutes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
from saq import Worker
from saq.queue.redis import RedisQueue
from saq.types import PartialTimersDict

from tests.bench.contenders import QUEUE, Handler, Settle, gathered

__all__ = ["Measured"]


def _queue(url: str) -> RedisQueue:
    # As many connections as places, and some: redis-py ends at 100 by default, and SAQ's worker with it.
    return RedisQueue(redis.asyncio.Redis.from_url(url, max_connections=1000), name=QUEUE)


class Measured:
    """SAQ."""

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        asyncio.run(gathered(self.producing(url), jobs, begin, at_once=1))

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        asyncio.run(gathered(self.producing(url), jobs, begin, at_once=100))

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[Settle]:
        async def noop(_context: Any, *, data: Any) -> None:
            handler(data)

        queue = _queue(url)
        await queue.connect()
        # Its sweep at the start can take up jobs that were just fetched, which then run twice.
        seldom = PartialTimersDict(schedule=1, worker_info=10, sweep=3600, abort=1)  # the others as shipped
        worker: Worker[Any] = Worker(queue, [("noop", noop)], concurrency=concurrency, timers=seldom)
        running = asyncio.ensure_future(worker.start())

        async def settle() -> None:
            while await queue.count("incomplete"):  # noqa: ASYNC110  the server reports to no one
                await asyncio.sleep(0.001)

        yield settle
        await worker.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await queue.disconnect()

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        queue = _queue(url)
        await queue.connect()
        yield lambda data: queue.enqueue("noop", data=data)
        await queue.disconnect()
