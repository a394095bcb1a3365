"""The base of all clients: a context manager around a connection, its own or a shared one."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.listener import AsyncListener
from orchestration_queue.client.entering import AsyncEntered
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection, ServerUrl

__all__ = ["AsyncClient", "AsyncQueueClient"]


class AsyncClient(AsyncEntered):
    """A client of one server. It connects when first used.

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: A connection to use instead. It stays open on :meth:`aclose`.

    Raises:
        UsageError: The URL is invalid, or both arguments are given.
    """

    def __init__(self, url: str | None, connection: AsyncConnection | None) -> None:
        self._is_lent = connection is not None
        self._connection = AsyncConnection.resolve(url, connection)

    @property
    def url(self) -> ServerUrl:
        """The server's URL."""
        return self._connection.url

    @property
    def _listener(self) -> AsyncListener:
        return self._connection.extension(AsyncListener)

    async def aclose(self) -> None:
        """Close the connection. A connection that was passed in stays open."""
        if not self._is_lent:
            await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncQueueClient(AsyncClient):
    """A client of one queue. It connects when first used.

    Args:
        name: The queue's name: up to 256 characters, without ``:`` ``{`` ``}``.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open when the client is closed.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        super().__init__(url, connection)
        self.name = name
        self.keys = QueueKeys(name, prefix)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _job(self, record: JobRecord) -> AsyncJob:
        return AsyncJob(self._connection, self.keys, record.id, record)
