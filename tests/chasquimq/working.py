"""Workers that run while a test looks on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from orchestration_queue.wires.chasquimq import ChasquiObserver, ChasquiWorker, ChasquiWorkerOptions
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys


@asynccontextmanager
async def working(
    queue: str,
    handler: Any,
    url: str,
    *,
    shutdown_timeout: timedelta = timedelta(seconds=20),
    observer: ChasquiObserver | None = None,
    middleware: Sequence[Any] = (),
    **options: Any,
) -> AsyncIterator[ChasquiWorker]:
    """A worker, until the block ends."""
    chosen = ChasquiWorkerOptions(shutdown_timeout=shutdown_timeout, **options)
    worker = ChasquiWorker(queue, handler, url=url, options=chosen, observer=observer, middleware=middleware)
    task = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(task, 60)


def is_settled(server: Any, keys: ChasquiKeys) -> bool:
    """Whether no job is ready, running or waiting, all at one time."""
    return not any(server.pipeline().xlen(keys.stream).zcard(keys.delayed).execute())
