"""The original, as it is on PyPI; tests of it are skipped where it is not installed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

__all__ = ["chasquimq", "their_worker"]

chasquimq = pytest.importorskip("chasquimq", reason="the original is not installed (make installs it)")


@asynccontextmanager
async def their_worker(queue: str, handler: Any, url: str, **options: Any) -> AsyncIterator[None]:
    """A worker of the original, until the block ends."""
    worker = chasquimq.Worker(
        queue, handler, redis_url=url, read_block_ms=50, scheduler_tick_ms=50, claim_min_idle_ms=60_000, **options
    )
    task = asyncio.ensure_future(worker.run())
    try:
        yield
    finally:
        await worker.close()
        await asyncio.wait_for(task, 60)
