"""The connection that clients and workers share: a few sockets, opened when needed and replaced when they break."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from redis.exceptions import BusyLoadingError

from orchestration_queue.errors import TransportError
from orchestration_queue.protocol.call import Call, Operation, Reply
from orchestration_queue.protocol.library import LIBRARIES, Library
from orchestration_queue.server._async.library import ensure_libraries
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.server.embedded import EmbeddedServer
from orchestration_queue.server.faults import (
    LINK_ERRORS,
    REFUSALS,
    interrupted,
    lacks_function,
    reason,
    refused,
    unreachable,
)
from orchestration_queue.server.url import ServerUrl, parse_url
from orchestration_queue.server.wire import pack

__all__ = ["AsyncConnection"]

T = TypeVar("T")

_MOST_SOCKETS = 32
"""Further concurrent calls wait for a socket; the server gains nothing from more."""
_CONNECT_TIMEOUT = timedelta(seconds=5)
_LOADING_PATIENCE_S = 60
"""A server that is reading its data after a restart is there; its clients wait longer for it."""
_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.25
_REPEATS = 3
"""How often a repeatable call is sent again after its connection broke."""


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
    """

    def __init__(
        self,
        url: ServerUrl,
        *,
        connect_timeout: timedelta = _CONNECT_TIMEOUT,
        libraries: Sequence[Library] = LIBRARIES,
    ) -> None:
        self.url = url
        self._connect_timeout = connect_timeout
        self._libraries = tuple(libraries)
        self._embedded = EmbeddedServer(url.path, url.grace) if url.kind == "embedded" else None
        self._closed = False
        self._inherited: list[AsyncLink] = []
        self._start_afresh()

    def _start_afresh(self) -> None:
        """Forget the sockets: on making, and in a forked child, where they are the parent's."""
        self._process = os.getpid()
        self._idle: list[AsyncLink] = []
        self._room = asyncio.Semaphore(_MOST_SOCKETS)

    @classmethod
    async def open(
        cls,
        url: str | ServerUrl | None = None,
        *,
        connect_timeout: timedelta = _CONNECT_TIMEOUT,
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
            await connection._give_back(await connection._take_link())
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def duplicate(self) -> Self:
        """Open another connection to the same server, with sockets of its own, to be closed by the caller."""
        return await self.open(self.url, connect_timeout=self._connect_timeout, libraries=self._libraries)

    async def execute(self, call: Call, *, repeatable: bool = False) -> Reply:
        """Send a call and return its raw reply.

        Args:
            call: What to send.
            repeatable: Carrying it out twice does no harm, so send it again if the connection breaks.

        Raises:
            ServerError: The server refused it.
            TransportError: The server could not be reached; ``maybe_applied`` says whether the call was sent.
        """
        replies = await self._exchange((call,), repeatable=repeatable)
        if lacks_function(call, replies[0]):
            await self._restore_libraries()
            replies = await self._exchange((call,), repeatable=repeatable)
        if isinstance(replies[0], REFUSALS):
            raise refused(self.url, call.name, replies[0])
        return replies[0]

    async def run(self, operation: Operation[T], *, repeatable: bool = False) -> T:
        """Carry out an operation and return what it reads from the reply; raises what :meth:`execute` does."""
        return operation.read(await self.execute(operation.call, repeatable=repeatable))

    async def pipeline(self, calls: Sequence[Call], *, atomic: bool = False, repeatable: bool = False) -> list[Reply]:
        """Send calls in one trip and return their raw replies in order.

        Args:
            calls: What to send.
            atomic: All in one transaction (MULTI and EXEC): nothing comes in between.
            repeatable: Carrying them out twice does no harm, so send them again if the connection breaks.

        Returns:
            One reply per call. A refused call's reply is a :class:`ServerError`, unless ``atomic``.

        Raises:
            ServerError: ``atomic``, and the server refused one of them.
            TransportError: The server could not be reached; ``maybe_applied`` says whether the calls were sent.
        """
        if not calls:
            return []
        if atomic:
            return await self._transaction(calls, repeatable)
        replies = await self._exchange(calls, repeatable=repeatable)
        missing = [index for index, call in enumerate(calls) if lacks_function(call, replies[index])]
        if missing:
            try:
                await self._restore_libraries()
                again = await self._exchange([calls[index] for index in missing], repeatable=repeatable)
            except TransportError as error:
                error.maybe_applied = True  # the others were
                raise
            for index, reply in zip(missing, again, strict=True):
                replies[index] = reply
        return [
            refused(self.url, call.name, reply) if isinstance(reply, REFUSALS) else reply
            for call, reply in zip(calls, replies, strict=True)
        ]

    async def _restore_libraries(self) -> None:
        """Load again what the server lost while we were connected; each new socket sees to that."""
        async with self._room:
            await self._give_back(await self._connect())

    async def _transaction(self, calls: Sequence[Call], repeatable: bool) -> list[Reply]:
        replies = await self._send_transaction(calls, repeatable)
        if all(map(lacks_function, calls, replies)):
            await self._restore_libraries()
            replies = await self._send_transaction(calls, repeatable)
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, REFUSALS):
                raise refused(self.url, call.name, reply)
        return replies

    async def _send_transaction(self, calls: Sequence[Call], repeatable: bool) -> list[Reply]:
        _, *queued, outcome = await self._exchange(calls, atomic=True, repeatable=repeatable)
        if isinstance(outcome, list):
            return outcome
        # EXEC was refused because a call was, and that refusal says why.
        if any(isinstance(reply, REFUSALS) for reply in queued):
            return queued
        return [outcome] * len(queued)

    async def _exchange(self, calls: Sequence[Call], *, atomic: bool = False, repeatable: bool = False) -> list[Reply]:
        packed = pack(calls, atomic=atomic)
        count = len(calls) + (2 if atomic else 0)
        if self._process != os.getpid():
            # Kept, since closing them here would take them out of the event loop's epoll set, which parent and
            # child share.
            self._inherited = self._idle
            self._start_afresh()
        async with self._room:
            repeats = _REPEATS if repeatable else 0
            was_sent = False
            while True:
                try:
                    link = await self._take_link()
                except TransportError as error:
                    error.maybe_applied |= was_sent
                    raise
                try:
                    was_sent = True
                    replies = await link.exchange(packed, count)
                except LINK_ERRORS as error:
                    await link.close()
                    if not repeats:
                        raise interrupted(self.url, calls, error) from None
                    repeats -= 1
                    continue
                except BaseException:
                    await link.close()  # cancelled half-way: the replies of this call must not meet the next one
                    raise
                await self._give_back(link)
                return replies

    async def _take_link(self) -> AsyncLink:
        if self._closed:
            raise TransportError(
                f"The connection to {self.url} was closed by this process; open another.", maybe_applied=False
            )
        while self._idle:
            try:
                link = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if await link.is_fresh():
                return link
            await link.close()
        return await self._connect()

    async def _give_back(self, link: AsyncLink) -> None:
        if self._closed:
            await link.close()
        else:
            self._idle.append(link)

    async def _connect(self) -> AsyncLink:
        """Connect, trying again while the server may only be starting or restarting."""
        patience = self._connect_timeout.total_seconds()
        started = time.monotonic()
        pause = _PAUSE_S
        while True:
            try:
                link = AsyncLink(self.url, self._socket_path(), patience)
                await self._prepare(link)
                return link
            except REFUSALS as error:
                raise refused(self.url, "the connection", error) from None
            except LINK_ERRORS as error:
                waited = time.monotonic() - started
                if waited >= (_LOADING_PATIENCE_S if isinstance(error, BusyLoadingError) else patience):
                    raise unreachable(self.url, waited, reason(error)) from None
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _prepare(self, link: AsyncLink) -> None:
        """Connect, and see to the libraries: after a failover this may be another server than before."""
        try:
            await link.connect()
            await ensure_libraries(link, self.url, self._libraries)
        except BaseException:
            await link.close()
            raise

    def _socket_path(self) -> Path | None:
        if self._embedded:
            return self._embedded.ensure()
        return self.url.path if self.url.kind == "unix" else None

    async def aclose(self) -> None:
        """Close every socket. An embedded server stops when its last user in any process has left."""
        self._closed = True
        idle = [] if self._process != os.getpid() else self._idle
        while idle:
            await idle.pop().close()
        if self._embedded:
            self._embedded.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
