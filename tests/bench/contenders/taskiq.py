"""taskiq with its stream broker: acknowledges after the handler, keeps no results, events or metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import redis.asyncio
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from tests.bench.contenders import QUEUE, Handler, Settle, gathered

__all__ = ["Measured"]


class Measured:
    """taskiq."""

    def _broker(self, url: str, handler: Handler = lambda _: None) -> tuple[RedisStreamBroker, Any]:
        broker = RedisStreamBroker(url, queue_name=QUEUE, xread_block=200)

        async def noop(data: Any) -> None:
            handler(data)

        return broker, broker.task(task_name="noop")(noop)

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        asyncio.run(gathered(self.producing(url), jobs, begin, at_once=1))

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        asyncio.run(gathered(self.producing(url), jobs, begin, at_once=100))

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[Settle]:
        broker, _ = self._broker(url, handler)
        broker.is_worker_process = True
        await broker.startup()
        running = asyncio.ensure_future(run_receiver_task(broker, max_async_tasks=concurrency))

        async def settle() -> None:
            async with redis.asyncio.Redis.from_url(url) as client:
                while (await _pending(client, broker.consumer_group_name)) > 0:  # noqa: ASYNC110  the server reports to no one
                    await asyncio.sleep(0.001)

        yield settle
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
