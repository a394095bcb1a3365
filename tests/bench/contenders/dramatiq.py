"""dramatiq: plain functions on threads, acknowledged after the handler; keeps no results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.bench.contenders import QUEUE, Handler, Settle

__all__ = ["Measured"]

_PRODUCERS = 8


class Measured:
    """dramatiq."""

    def _actor(self, url: str, handler: Handler = lambda _: None) -> tuple[RedisBroker, Any]:
        broker = RedisBroker(url=url)  # type: ignore[no-untyped-call]  # its constructor has no types
        return broker, dramatiq.actor(actor_name="noop", queue_name=QUEUE, broker=broker)(handler)

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        broker, actor = self._actor(url)
        begin()
        for number in range(jobs):
            actor.send({"at": number})
        broker.close()

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        broker, actor = self._actor(url)
        with ThreadPoolExecutor(_PRODUCERS) as threads:
            begin()
            for _ in threads.map(actor.send, ({"at": number} for number in range(jobs))):
                pass
        broker.close()

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[Settle]:
        broker, _ = self._actor(url, lambda data: handler(data))
        worker = dramatiq.Worker(broker, worker_threads=concurrency, worker_timeout=100)
        worker.start()
        yield lambda: asyncio.to_thread(broker.join, QUEUE, interval=1)
        await asyncio.to_thread(worker.stop)
        broker.close()

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        broker, actor = self._actor(url)

        async def send(data: Any) -> None:
            actor.send(data)

        yield send
        broker.close()
