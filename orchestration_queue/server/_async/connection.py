"""The connection that clients and workers share: calls go in, replies and our own errors come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self, TypeVar, cast

from orchestration_queue.errors import InvalidOptionError, ServerError, UsageError
from orchestration_queue.options.durations import Duration, as_timedelta, check_duration
from orchestration_queue.protocol.call import Call, Conversation, Operation, Reply
from orchestration_queue.protocol.library import LIBRARIES, Library
from orchestration_queue.server._async.cluster import AsyncCluster
from orchestration_queue.server._async.node import AsyncNode
from orchestration_queue.server._async.subscription import AsyncSubscription
from orchestration_queue.server.driver_errors import REFUSALS, loop_error, refused
from orchestration_queue.server.instrumentation import exchange_hooks, report_exchange
from orchestration_queue.server.url import ServerUrl, Timeouts, parse_url

__all__ = ["AsyncConnection"]

T = TypeVar("T")


class AsyncExtension(Protocol):
    """An object that is closed with a connection; see :meth:`AsyncConnection.extension`."""

    async def aclose(self) -> None:
        """Close it, because the connection is closed."""


E = TypeVar("E", bound=AsyncExtension)


class AsyncConnection:
    """A connection to the server, for any number of concurrent tasks. It connects when first used.

    Each call has its own socket while it runs, so a blocking read delays no other call; still, give a loop that blocks
    all the time its own :meth:`duplicate`. Sockets are opened when needed, and again after an outage: a call that was
    not sent yet waits for the server to come back, up to ``connect_timeout``. After a fork, the child opens its own
    sockets. It belongs to one event loop.

    Example::

        async with await AsyncConnection.open("redis://localhost") as connection:
            assert await connection.execute(Call("PING")) == b"PONG"

    Args:
        url: See :func:`~orchestration_queue.server.parse_url`; None is ``OQ_URL``, or else ``embedded://``.
        timeout: How long to wait for the reply to a call; a blocking read may take its own time longer. Default the
            URL's, or else 30 s.
        connect_timeout: How long to try to reach the server, at first and after an outage, including TLS, login, and
            the libraries. Default the URL's, or else 5 s.
        libraries: The function libraries to keep loaded. A newer one on the server is kept.

    Raises:
        UsageError: The URL is invalid.

    Attributes:
        is_closed: Whether this process has closed it.
    """

    def __init__(
        self,
        url: str | ServerUrl | None = None,
        *,
        timeout: Duration | None = None,
        connect_timeout: Duration | None = None,
        libraries: Sequence[Library] = LIBRARIES,
    ) -> None:
        # An invalid URL is refused immediately; that of the environment is read when the connection opens.
        self._url = url if url is None else parse_url(url)
        self._timeout = _check_limit(timeout, "timeout")
        self._connect_timeout = _check_limit(connect_timeout, "connect_timeout")
        self._libraries = tuple(libraries)
        self._server: AsyncCluster | AsyncNode | None = None
        self._is_lazy = True
        self._extensions: dict[object, AsyncExtension] = {}
        self.is_closed = False

    @classmethod
    def resolve(cls, url: str | None, connection: Self | None) -> Self:
        """Return the connection that was passed in, or else a new one to the URL.

        Raises:
            UsageError: Both are given, the connection is something else, or the URL is invalid.
        """
        if url is not None and connection is not None:
            raise UsageError("Both `url` and `connection` are given; pass only one.")
        if connection is not None and not isinstance(connection, cls):
            raise UsageError(f"`connection` must be an AsyncConnection, got {connection!r}; pass `url=` for a URL.")
        return cls(url) if connection is None else connection

    @classmethod
    async def open(
        cls,
        url: str | ServerUrl | None = None,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109  of later calls
        connect_timeout: Duration | None = None,
        libraries: Sequence[Library] = LIBRARIES,
    ) -> Self:
        """Connect now, and make sure that the server has our function libraries.

        Args:
            url: As for the class.
            timeout: As for the class.
            connect_timeout: As for the class.
            libraries: As for the class.

        Raises:
            UsageError: The URL is invalid.
            EmbeddedServerError: The embedded server's directory can't be used.
            TransportError: The server is unreachable.
            UnsupportedServerError: The server is too old for functions, or lacks a command.
            ServerError: The server refuses the credentials, or the libraries.
        """
        connection = cls(url, timeout=timeout, connect_timeout=connect_timeout, libraries=libraries)
        await connection._greet()
        connection._is_lazy = False
        return connection

    async def _greet(self) -> AsyncCluster | AsyncNode:
        """Connect to the server; the first caller connects for all."""
        if self.is_closed:
            raise UsageError("This client is closed; create a new one.")
        url = parse_url(self._url)
        serves = AsyncCluster if url.mode == "cluster" else AsyncNode
        timeouts = Timeouts(
            self._timeout or as_timedelta(url.timeout), self._connect_timeout or as_timedelta(url.connect_timeout)
        )
        server: AsyncCluster | AsyncNode = serves(url, self._libraries, timeouts)
        try:
            await server.greet()
        except BaseException:
            await server.aclose()
            raise
        if self._server is None and not self.is_closed:
            self._url, self._server = url, server
            return server
        # Another task was first, or closed the connection, while this one waited.
        await server.aclose()
        return self._server or await self._greet()

    @property
    def url(self) -> ServerUrl:
        """The server's URL."""
        return parse_url(self._url)

    async def duplicate(self) -> Self:
        """Return another connection to the same server, with its own sockets, to be closed by the caller.

        It connects when first used; in a cluster, only to the primaries that it needs.
        """
        server = self._server or await self._greet()
        duplicate = type(self)(
            self._url, timeout=self._timeout, connect_timeout=self._connect_timeout, libraries=self._libraries
        )
        duplicate._server, duplicate._is_lazy = server.duplicate(), False
        return duplicate

    def extension(self, make: Callable[[Self], E]) -> E:
        """Return what ``make`` returns for this connection: called once, and closed with the connection."""
        found = self._extensions.get(make) or self._extensions.setdefault(make, make(self))
        return cast("E", found)

    @property
    def is_cluster(self) -> bool:
        """Whether queues are on several servers, each on one of them."""
        return self.url.mode == "cluster"

    async def primaries(self) -> list[ServerUrl]:
        """Return the current URL of each primary; without a cluster there is one."""
        server = self._server or await self._greet()
        return await server.urls() if isinstance(server, AsyncCluster) else [self.url]

    async def subscribe(self, channels: Sequence[str]) -> AsyncSubscription:
        """Subscribe to channels, on a socket of their own that the caller closes; raise what :meth:`execute` does."""
        server = self._server or await self._greet()
        return await server.subscribe(channels)

    async def leave_old_primary(self) -> None:
        """Abort the calls in progress if sentinels are replacing the primary. Does nothing for other servers."""
        if isinstance(self._server, AsyncNode):
            await self._server.leave_old_primary()

    async def execute(self, call: Call, *, repeatable: bool = False) -> Reply:
        """Send a call and return its raw reply.

        Args:
            call: What to send.
            repeatable: Executing it twice is harmless, so send it again if the connection breaks.

        Raises:
            ServerError: The server refused it.
            TransportError: The server was unreachable; ``maybe_applied`` says whether the call was sent.
        """
        (reply,) = await self._exchange((call,), atomic=False, repeatable=repeatable)
        if isinstance(reply, REFUSALS):
            raise refused(self.url, call.name, reply)
        return reply

    async def run(self, operation: Operation[T], *, repeatable: bool = False) -> T:
        """Run an operation and return what it reads from the reply; raise what :meth:`execute` does."""
        return operation.read(await self.execute(operation.call, repeatable=repeatable))

    async def look(self, operation: Operation[T]) -> T:
        """Run an operation that changes nothing, as :meth:`run` does, again if the connection breaks."""
        return operation.read(await self.execute(operation.call, repeatable=True))

    async def pipeline(
        self, calls: Sequence[Call], *, atomic: bool = False, repeatable: bool = False, raises: bool = True
    ) -> list[Reply]:
        """Send calls in one exchange (in a cluster: one per server they concern) and return their raw replies in order.

        Args:
            calls: What to send.
            atomic: All in one transaction (MULTI and EXEC): nothing comes in between.
            repeatable: Executing them twice is harmless, so send them again if the connection breaks.
            raises: Whether a refused call of a transaction raises, although the server executed the others.

        Returns:
            One reply per call. A refused call's reply is a :class:`ServerError`, unless ``atomic`` and ``raises``.

        Raises:
            UsageError: ``atomic``, and a cluster keeps the calls' keys on several servers; nothing was sent.
            ServerError: ``atomic`` and ``raises``, and the server refused one of them.
            TransportError: The server was unreachable; ``maybe_applied`` says whether the calls were sent.
        """
        if not calls:
            return []
        replies = self._name_refusals(calls, await self._exchange(calls, atomic=atomic, repeatable=repeatable))
        if atomic and raises:
            for reply in replies:
                if isinstance(reply, ServerError):
                    raise reply
        return replies

    async def pipelines(self, batches: Iterable[Sequence[Call]]) -> list[list[Reply]]:
        """Send batches of calls as :meth:`pipeline` does, each while the server works on the previous one.

        Nothing more is sent once the first call of a batch is refused; the batch after it was then sent already.

        Args:
            batches: What to send; an iterator can build each batch when it is requested.

        Returns:
            For each batch that was sent, one reply per call.

        Raises:
            TransportError: The server was unreachable; ``maybe_applied`` says whether anything was sent.
        """
        server = self._server or await self._greet()
        done: list[list[Reply]] = []
        # Batch by batch: calls are observed, or the next may have to go elsewhere because a slot moves or a failover
        # begins.
        if exchange_hooks or isinstance(server, AsyncCluster) or self.url.mode != "single":
            for calls in batches:
                done.append(await self.pipeline(calls))
                if isinstance(done[-1][0], ServerError):
                    break
            return done
        try:
            answered = await server.exchange_each(iter(batches))
        except RuntimeError as error:
            raise loop_error(error) from None
        return [self._name_refusals(calls, replies) for calls, replies in answered]

    def _name_refusals(self, calls: Sequence[Call], replies: list[Reply]) -> list[Reply]:
        """Replace each refusal with our own error, which names the call."""
        for index, reply in enumerate(replies):
            if isinstance(reply, REFUSALS):
                replies[index] = refused(self.url, calls[index].name, reply)
        return replies

    async def _exchange(self, calls: Sequence[Call], *, atomic: bool, repeatable: bool) -> list[Reply]:
        server = self._server or await self._greet()
        try:
            if not exchange_hooks:
                return await server.exchange(calls, atomic=atomic, repeatable=repeatable)
            with report_exchange(calls) as replies:
                replies += await server.exchange(calls, atomic=atomic, repeatable=repeatable)
        except RuntimeError as error:
            raise loop_error(error) from None
        return replies

    async def follow(self, steps: Conversation[T]) -> T:
        """Run a conversation of several exchanges that changes nothing; raise what :meth:`execute` does."""
        try:
            calls = next(steps)
            while True:
                calls = steps.send(await self.pipeline(calls, repeatable=True))
        except StopIteration as end:
            result: T = end.value
            return result

    async def aclose(self) -> None:
        """Close every socket. An embedded server stops when its last user in any process has closed."""
        # First: callers that are connecting must find it closed, or they would open it again.
        self.is_closed = True
        for extension in self._extensions.values():
            await extension.aclose()
        if self._server is not None:
            await self._server.aclose()
        if self._is_lazy:
            self._server = None  # using a closed client is a mistake; a lost connection is an outage

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _check_limit(value: Duration | None, name: str) -> timedelta | None:
    """Return a time limit that was passed."""
    found = None if value is None else check_duration(value, name)
    if found == timedelta(0):
        raise InvalidOptionError(f"`{name}` must be longer than 0, since no server replies at once; pass `{name}=5`.")
    return found
