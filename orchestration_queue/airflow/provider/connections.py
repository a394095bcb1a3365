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
    """A connection that is open or opens, and how many use it."""

    opening: asyncio.Task[AsyncConnection]
    users: int = 0

    @property
    def has_failed(self) -> bool:
        """Whether it could not be opened."""
        return self.opening.done() and (self.opening.cancelled() or self.opening.exception() is not None)

    async def close(self) -> None:
        """Close it, or stop opening it."""
        self.opening.cancel()
        await asyncio.wait([self.opening])
        if not self.has_failed:
            await self.opening.result().aclose()


_Key: TypeAlias = tuple[asyncio.AbstractEventLoop, ServerUrl]
_open: dict[_Key, _Shared] = {}


@asynccontextmanager
async def shared_connection(url: ServerUrl) -> AsyncIterator[AsyncConnection]:
    """Open a connection, or use that of the running event loop's other triggers; the last user closes it.

    The first opens it for all: a triggerer that starts with 1,000 triggers must not connect 1,000 times.

    Raises:
        TransportError: The server is unreachable.
        ServerError: The server refuses the connection.
    """
    key = (asyncio.get_running_loop(), url)
    shared = _open.get(key)
    if shared is None or shared.has_failed:
        shared = _open[key] = _Shared(asyncio.ensure_future(AsyncConnection.open(url)))
    shared.users += 1
    try:
        yield await asyncio.shield(shared.opening)
    finally:
        shared.users -= 1
        if shared.users == 0:
            if _open.get(key) is shared:
                del _open[key]
            await shared.close()
