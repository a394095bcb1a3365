"""A connection that opens when first used, and the messages that qless publishes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from types import TracebackType
from typing import Self

from orchestration_queue.dialects.qless.commands import (
    LIBRARY,
    Duration,
    checked_count,
    command,
    duration_s,
    text_word,
    text_words,
    translate_error,
)
from orchestration_queue.dialects.qless.records import QlessEvent, QlessJob, read_event
from orchestration_queue.errors import ServerError, TransportError, UsageError
from orchestration_queue.options import as_timedelta
from orchestration_queue.protocol.call import Call, Reply, Word, pack
from orchestration_queue.server import AsyncConnection, ServerUrl, parse_url
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.server.clock import now_ms
from orchestration_queue.server.driver_errors import LINK_ERRORS, reason, unreachable

__all__ = ["AsyncQlessConnection", "AsyncQlessEvents"]

_CONNECT_TIMEOUT = as_timedelta(10)
_LOOK_AGAIN_S = 0.05
_PING = pack([Call("PING")])


class AsyncQlessConnection:
    """Sends commands in a worker's name.

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        worker: The name under which jobs are taken; default: the host's name and the process id.

    Raises:
        UsageError: The URL is invalid, or the name is empty.

    Attributes:
        worker: The name under which jobs are taken.
    """

    def __init__(self, *, url: str | ServerUrl | None = None, worker: str | None = None) -> None:
        self._url = url if url is None else parse_url(url)
        self.worker = f"{socket.gethostname()}-{os.getpid()}" if worker is None else text_word(worker, "worker")
        self._opened: AsyncConnection | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def _connection(self) -> AsyncConnection:
        async with self._opening:
            if self._is_closed:
                raise UsageError("This qless client is closed; create another.")
            if self._opened is None:
                self._opened = await AsyncConnection.open(self._url, libraries=(LIBRARY,))
            return self._opened

    async def command(self, name: str, *words: Word) -> Reply:
        """Send a command and return its raw reply.

        Args:
            name: The command, such as ``queue.forget``.
            words: Its arguments after the time.

        Raises:
            ServerError: The server refused it.
        """
        strange = next(
            (word for word in words if isinstance(word, bool) or not isinstance(word, str | int | float)), ""
        )
        if strange != "":
            raise UsageError(f"A command's words must be strings or numbers, got {strange!r}; encode it first.")
        return await self._execute(command(text_word(name, "name"), *words))

    async def _execute(self, call: Call) -> Reply:
        return await (await self._connection()).execute(call)

    async def _about(self, job: QlessJob | str, name: str, *words: Word) -> Reply:
        """Send a command about a job; translate a refusal into the specific error."""
        try:
            return await self.command(name, *words)
        except ServerError as error:
            if isinstance(job, QlessJob):
                raise translate_error(error, job.jid, job.queue) from None
            raise translate_error(error, job) from None

    async def aclose(self) -> None:
        """Close the connection."""
        async with self._opening:
            self._is_closed = True
            if self._opened is not None:
                await self._opened.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncQlessEvents(AsyncQlessConnection):
    """The messages of all queues: an endless iterator. Messages published before it started are not seen.

    Args:
        channels: Channels without ``ql:``: ``log`` has most messages; ``completed``, ``failed`` and others are about
            tracked jobs, and ``w:<worker>`` about a worker's jobs.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.

    Raises:
        UsageError: A value is invalid.
    """

    def __init__(self, *channels: str, url: str | ServerUrl | None = None) -> None:
        super().__init__(url=url)
        self._channels = tuple(f"ql:{name}" for name in text_words(channels or ("log",), "channels"))
        self._link: AsyncLink | None = None
        self._ahead: deque[QlessEvent] = deque()

    async def start(self) -> None:
        """Subscribe, so that no later message is missed."""
        if self._link is not None:
            return
        (primary, *_) = await (await self._connection()).primaries()
        link = AsyncLink(primary, _CONNECT_TIMEOUT)
        try:
            await link.connect()
            await link.send([Call("SUBSCRIBE", args=(channel,)) for channel in self._channels])
        except LINK_ERRORS as error:
            await link.close()
            raise unreachable(primary, 0.0, reason(error)) from error
        self._link = link

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> QlessEvent:
        if self._ahead:
            return self._ahead.popleft()
        await self.start()
        message = await self._receive(b"")
        return read_event(message[1], message[2])

    async def read(self, timeout: Duration = 0, limit: int = 100) -> list[QlessEvent]:  # noqa: ASYNC109  both faces have it
        """Return the next messages; the first call subscribes.

        Args:
            timeout: How long to wait for the first: a duration, or seconds.
            limit: At most this many.

        Raises:
            TransportError: The subscription broke. Read again to resubscribe.
        """
        most, ends_at = checked_count(limit, "limit"), now_ms() / 1000 + duration_s(timeout, "timeout")
        await self.start()
        while True:
            # The reply to a ping comes after the messages that were published before it.
            message = await self._receive(_PING)
            while message[0] == b"message":
                self._ahead.append(read_event(message[1], message[2]))
                message = await self._receive(b"")
            left = ends_at - now_ms() / 1000
            if self._ahead or left <= 0:
                return [self._ahead.popleft() for _ in range(min(most, len(self._ahead)))]
            await asyncio.sleep(min(left, _LOOK_AGAIN_S))

    async def _receive(self, packed: bytes) -> Reply:
        if self._link is None:
            raise StopAsyncIteration
        try:
            (message,) = await self._link.exchange(packed, 1)
        except LINK_ERRORS as error:
            await self._link.close()
            self._link = None
            broke = f"The subscription broke ({reason(error)}); iterate again to resubscribe."
            raise TransportError(broke, maybe_applied=False) from error
        return message

    async def aclose(self) -> None:
        """End the subscription."""
        if self._link is not None:
            await self._link.close()
        await super().aclose()
