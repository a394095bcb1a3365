"""The base of all clients: a context manager around a connection, their own or one that was passed in."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from orchestration_queue.client._async.listener import AsyncListener
from orchestration_queue.server import AsyncConnection, ServerUrl

__all__ = ["AsyncClient"]


class AsyncClient:
    """A client of one server. Connects when first needed.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: A connection to use instead; it stays open on :meth:`aclose`.

    Raises:
        UsageError: The URL cannot be read, or both are given.
    """

    def __init__(self, url: str | None, connection: AsyncConnection | None) -> None:
        self._is_lent = connection is not None
        self._connection = AsyncConnection.resolve(url, connection)

    @property
    def url(self) -> ServerUrl:
        """Where the server is."""
        return self._connection.url

    @property
    def _listener(self) -> AsyncListener:
        return self._connection.extension(AsyncListener)

    async def aclose(self) -> None:
        """Hang up. A connection that was passed in stays open."""
        if not self._is_lent:
            await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
