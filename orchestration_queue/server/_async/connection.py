"""The connection that clients and workers share: calls go in, replies and our own errors come out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeVar

from orchestration_queue.options.durations import Duration, checked_duration
from orchestration_queue.protocol.call import Call, Operation, Reply
from orchestration_queue.protocol.library import LIBRARIES, Library
from orchestration_queue.protocol.operations.conversation import Conversation
from orchestration_queue.server._async.cluster import AsyncCluster
from orchestration_queue.server._async.node import AsyncNode
from orchestration_queue.server.driver_errors import REFUSALS, refused
from orchestration_queue.server.instrumentation import watched, watchers
from orchestration_queue.server.url import ServerUrl, parse_url

__all__ = ["AsyncConnection"]

T = TypeVar("T")

_CONNECT_TIMEOUT = timedelta(seconds=5)


class AsyncConnection:
    """A connection to the server, for any number of tasks at a time.

    Each call has a socket to itself while it runs, so a blocking read holds up nobody else's call; still, give a
    loop that blocks all the time its own :meth:`duplicate`. Sockets are opened when needed, and again after the
    server was away: a call that was not yet sent waits for the server to come back, up to ``connect_timeout``.
    After a fork the child opens its own sockets. Belongs to one event loop.

    Example::

        async with await AsyncConnection.open("redis://localhost") as connection:
            assert await connection.execute(Call("PING")) == b"PONG"

    Args:
        url: Where the server is.
        connect_timeout: How long to try to reach it.
        libraries: The function libraries to keep loaded.

    Attributes:
        url: Where the server is.
        is_closed: Whether this process hung up.
    """

    def __init__(
        self,
        url: ServerUrl,
        *,
        connect_timeout: Duration = _CONNECT_TIMEOUT,
        libraries: Sequence[Library] = LIBRARIES,
    ) -> None:
        self.url = url
        self._connect_timeout = checked_duration(connect_timeout, "connect_timeout")
        self._libraries = tuple(libraries)
        serves = AsyncCluster if url.mode == "cluster" else AsyncNode
        self._server: AsyncCluster | AsyncNode = serves(url, self._libraries, self._connect_timeout)
        self.is_closed = False

    @classmethod
    async def open(
        cls,
        url: str | ServerUrl | None = None,
        *,
        connect_timeout: Duration = _CONNECT_TIMEOUT,
        libraries: Sequence[Library] = LIBRARIES,
    ) -> Self:
        """Connect, and make sure that the server holds our function libraries.

        Args:
            url: See :func:`~orchestration_queue.server.parse_url`; None is ``OQ_URL``, else ``embedded://``.
            connect_timeout: How long to try to reach the server, now and after it was away.
            libraries: The function libraries to see to. A newer one on the server stays.

        Raises:
            UsageError: The URL cannot be read.
            EmbeddedServerError: The embedded server's directory cannot be used.
            TransportError: The server cannot be reached.
            UnsupportedServerError: The server is too old for functions.
            ServerError: The server does not let us in, or does not take the libraries.
        """
        connection = cls(parse_url(url), connect_timeout=connect_timeout, libraries=libraries)
        try:
            await connection._server.greet()
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def duplicate(self) -> Self:
        """Open another connection to the same server, with sockets of its own, to be closed by the caller."""
        return await self.open(self.url, connect_timeout=self._connect_timeout, libraries=self._libraries)

    @property
    def is_cluster(self) -> bool:
        """Whether queues live on several servers, each on one of them."""
        return isinstance(self._server, AsyncCluster)

    async def primaries(self) -> list[ServerUrl]:
        """Where each primary is at the moment; without a cluster there is one."""
        return await self._server.urls() if isinstance(self._server, AsyncCluster) else [self.url]

    async def execute(self, call: Call, *, repeatable: bool = False) -> Reply:
        """Send a call and return its raw reply.

        Args:
            call: What to send.
            repeatable: Carrying it out twice does no harm, so send it again if the connection breaks.

        Raises:
            ServerError: The server refused it.
            TransportError: The server could not be reached; ``maybe_applied`` says whether the call was sent.
        """
        (reply,) = await self._exchange((call,), atomic=False, repeatable=repeatable)
        if isinstance(reply, REFUSALS):
            raise refused(self.url, call.name, reply)
        return reply

    async def run(self, operation: Operation[T], *, repeatable: bool = False) -> T:
        """Carry out an operation and return what it reads from the reply; raises what :meth:`execute` does."""
        return operation.read(await self.execute(operation.call, repeatable=repeatable))

    async def pipeline(self, calls: Sequence[Call], *, atomic: bool = False, repeatable: bool = False) -> list[Reply]:
        """Send calls in one trip (in a cluster: one to each server they concern) and return their raw replies in order.

        Args:
            calls: What to send.
            atomic: All in one transaction (MULTI and EXEC): nothing comes in between.
            repeatable: Carrying them out twice does no harm, so send them again if the connection breaks.

        Returns:
            One reply per call. A refused call's reply is a :class:`ServerError`, unless ``atomic``.

        Raises:
            UsageError: ``atomic``, and a cluster keeps the calls' keys on several servers; nothing was sent.
            ServerError: ``atomic``, and the server refused one of them.
            TransportError: The server could not be reached; ``maybe_applied`` says whether the calls were sent.
        """
        if not calls:
            return []
        replies = await self._exchange(calls, atomic=atomic, repeatable=repeatable)
        for index, reply in enumerate(replies):
            if isinstance(reply, REFUSALS):
                replies[index] = refused(self.url, calls[index].name, reply)
                if atomic:
                    raise replies[index]
        return replies

    async def _exchange(self, calls: Sequence[Call], *, atomic: bool, repeatable: bool) -> list[Reply]:
        if not watchers:
            return await self._server.exchange(calls, atomic=atomic, repeatable=repeatable)
        with watched(calls) as replies:
            replies += await self._server.exchange(calls, atomic=atomic, repeatable=repeatable)
        return replies

    async def follow(self, steps: Conversation[T]) -> T:
        """Carry out an exchange of several steps that changes nothing; raises what :meth:`execute` does."""
        try:
            calls = next(steps)
            while True:
                calls = steps.send(await self.pipeline(calls, repeatable=True))
        except StopIteration as end:
            result: T = end.value
            return result

    async def aclose(self) -> None:
        """Close every socket. An embedded server stops when its last user in any process has left."""
        self.is_closed = True
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
