"""streaQ: acknowledges after the handler, keeps results for five minutes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import streaq

from tests.bench.contenders import QUEUE, Handler, Settle, gathered

__all__ = ["Measured"]

_A_CALL = 1000


class Measured:
    """streaQ."""

    def _worker(self, url: str, concurrency: int = 1, handler: Handler = lambda _: None) -> tuple[Any, Any]:
        worker: Any = streaq.Worker(url, concurrency=concurrency, queue_name=QUEUE, handle_signals=False)

        async def noop(data: Any) -> None:
            handler(data)

        return worker, worker.task(name="noop")(noop)

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        asyncio.run(gathered(self.producing(url), jobs, begin, at_once=1))

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        async def add() -> None:
            worker, task = self._worker(url)
            async with worker:
                begin()
                for first in range(0, jobs, _A_CALL):
                    numbers = range(first, min(first + _A_CALL, jobs))
                    await worker.enqueue_many([task.enqueue({"at": number}) for number in numbers])

        asyncio.run(add())

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[Settle]:
        worker, _ = self._worker(url, concurrency, handler)
        running = asyncio.ensure_future(worker.run_async())

        async def settle() -> None:
            while await worker.queue_size() or worker.running():  # noqa: ASYNC110  the server reports to no one
                await asyncio.sleep(0.001)

        yield settle
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        worker, task = self._worker(url)
        async with worker:

            async def enqueue(data: Any) -> None:
                await task.enqueue(data)

            yield enqueue
