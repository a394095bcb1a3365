"""A connection that opens when first needed, shared by all objects of one client."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from orchestration_queue.client._async.listener import AsyncListener
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import Call, Operation, Reply
from orchestration_queue.protocol.operations.conversation import Conversation
from orchestration_queue.server import AsyncConnection, ServerUrl, parse_url

__all__ = ["AsyncChannel", "AsyncClient"]

T = TypeVar("T")


class AsyncChannel:
    """A connection that opens when first needed.

    Args:
        url: The server.
        connection: An open connection to use instead; it stays open on :meth:`aclose`.

    Raises:
        UsageError: The URL cannot be read, or both are given.

    Attributes:
        listener: Reads the events that those wait for who wait for jobs.
    """

    def __init__(self, url: str | None = None, connection: AsyncConnection | None = None) -> None:
        if url is not None and connection is not None:
            raise UsageError("Both url and connection are given, and one of them would be ignored; pass either.")
        if connection is not None and not isinstance(connection, AsyncConnection):
            raise UsageError(f"`connection` must be an AsyncConnection, got {connection!r}; pass `url=` for a URL.")
        # A URL that cannot be read is known at once; the environment's counts when the connection opens.
        self._url = url if url is None else parse_url(url)
        self._connection = connection
        self._is_ours = connection is None
        self._is_closed = False
        self.listener = AsyncListener(self)

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._is_closed or (self._connection is not None and self._connection.is_closed)

    @property
    def url(self) -> ServerUrl:
        """Where the server is."""
        return parse_url(self._url) if self._connection is None else self._connection.url

    async def connection(self) -> AsyncConnection:
        """The connection, opened if need be.

        Raises:
            UsageError: The channel is closed.
            TransportError: The server cannot be reached.
        """
        if self._is_closed:
            raise UsageError("This client is closed; make a new one.")
        return self._connection or await self._open()

    async def _open(self) -> AsyncConnection:
        opened = await AsyncConnection.open(self._url)
        if self._connection is None and not self._is_closed:
            self._connection = opened
            return opened
        # Somebody else was first, or hung up, while we waited.
        await opened.aclose()
        return await self.connection()

    async def run(self, operation: Operation[T]) -> T:
        """Carry out one operation."""
        return await (await self.connection()).run(operation)

    async def look(self, operation: Operation[T]) -> T:
        """Carry out one operation that changes nothing, again if the connection breaks."""
        return await (await self.connection()).run(operation, repeatable=True)

    async def execute(self, call: Call) -> Reply:
        """Send one call."""
        return await (await self.connection()).execute(call)

    async def pipeline(self, calls: Sequence[Call], *, atomic: bool = False, repeatable: bool = False) -> list[Reply]:
        """Send many calls in one trip."""
        return await (await self.connection()).pipeline(calls, atomic=atomic, repeatable=repeatable)

    async def follow(self, steps: Conversation[T]) -> T:
        """Carry out an exchange of several steps that changes nothing."""
        return await (await self.connection()).follow(steps)

    async def duplicate(self) -> AsyncConnection:
        """A connection of its own, for reads that wait."""
        return await (await self.connection()).duplicate()

    async def aclose(self) -> None:
        """Hang up."""
        self._is_closed = True
        await self.listener.aclose()
        if self._connection is not None and self._is_ours:
            await self._connection.aclose()
        self._connection = None


class AsyncClient:
    """Base of the clients: a context manager around a channel of their own, or one they were lent."""

    def __init__(self, url: str | None, connection: AsyncConnection | AsyncChannel | None) -> None:
        self._is_lent = isinstance(connection, AsyncChannel)
        self._channel = connection if isinstance(connection, AsyncChannel) else AsyncChannel(url, connection)

    @property
    def url(self) -> ServerUrl:
        """Where the server is."""
        return self._channel.url

    async def aclose(self) -> None:
        """Hang up. A connection that was passed in stays open."""
        if not self._is_lent:
            await self._channel.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
