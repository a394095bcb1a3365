"""Workers for tests: quick to notice things, and stopped in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from orchestration_queue.client import AsyncQueue
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.worker import Middleware, Router, Worker

__all__ = ["HEARS_SOON", "QUICK", "working"]

QUICK = WorkerOptions(
    concurrency=4,
    lease=timedelta(seconds=5),  # long enough to be renewed in time on a busy machine
    stalled_interval=timedelta(milliseconds=300),
    promotion_interval=timedelta(milliseconds=100),
    flow_interval=timedelta(milliseconds=200),
    drain=timedelta(seconds=5),
)
HEARS_SOON = JobOptions(lease=timedelta(seconds=1))
"""A job whose worker notices its revocation within half a second: when it renews the lease."""


@asynccontextmanager
async def working(
    queue: AsyncQueue,
    handler: Callable[..., Any] | Router,
    url: str,
    *,
    middleware: Sequence[Middleware] = (),
    **options: Any,
) -> AsyncIterator[Worker]:
    """A worker of the queue, stopped in the end."""
    quick = QUICK.model_copy(update=options)
    worker = Worker(queue.name, handler, url=url, prefix=queue.keys.prefix, options=quick, middleware=middleware)
    running = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 60)
