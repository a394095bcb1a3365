"""One connection to each server for all triggers of a triggerer, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from orchestration_queue.server import AsyncConnection, ServerUrl

__all__ = ["shared_connection"]


@dataclass(slots=True)
class _Shared:
    """An open connection, and how many use it."""

    connection: AsyncConnection
    users: int = 0


_Key: TypeAlias = tuple[asyncio.AbstractEventLoop, ServerUrl]
_open: dict[_Key, _Shared] = {}


@asynccontextmanager
async def shared_connection(url: ServerUrl) -> AsyncIterator[AsyncConnection]:
    """Open a connection, or use that of the running event loop's other triggers; the last user closes it."""
    key = (asyncio.get_running_loop(), url)
    shared = _open.setdefault(key, _Shared(AsyncConnection(url)))
    shared.users += 1
    try:
        yield shared.connection
    finally:
        shared.users -= 1
        if shared.users == 0:
            del _open[key]
            await shared.connection.aclose()
