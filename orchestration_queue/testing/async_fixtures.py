"""Fixtures that are coroutines. The plugin registers them where pytest-asyncio or anyio's plugin runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orchestration_queue.client import AsyncQueue


async def _oq_async_queue(oq_server: str, oq_queue_name: str) -> AsyncIterator[AsyncQueue]:
    """Yield the async face of this test's queue, removed after the test."""
    from orchestration_queue.client import AsyncQueue

    async with AsyncQueue(oq_queue_name, url=oq_server) as queue:
        yield queue
        await queue.obliterate(force=True)


def mark_for(*, asyncio: bool) -> None:
    """Define the fixtures in the way of the plugin that will run them."""
    fixture: object
    if asyncio:
        import pytest_asyncio

        fixture = pytest_asyncio.fixture(name="oq_async_queue")(_oq_async_queue)  # strict mode insists on its own
    else:
        fixture = pytest.fixture(name="oq_async_queue")(_oq_async_queue)
    globals()["oq_async_queue"] = fixture
