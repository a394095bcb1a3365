"""A connection that opens when first used, and the messages that qless publishes."""

from __future__ import annotations

import asyncio
import os
import socket
from types import TracebackType
from typing import Self

from orchestration_queue.errors import ServerError, TransportError, UsageError
from orchestration_queue.protocol.call import Call, Reply, Word
from orchestration_queue.server import AsyncConnection, AsyncSubscription, ServerUrl, parse_url
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.qless.commands import (
    LIBRARY,
    Duration,
    check_count,
    command,
    duration_s,
    text_word,
    text_words,
    translate_error,
)
from orchestration_queue.wires.qless.records import QlessEvent, QlessJob, read_event

__all__ = ["AsyncQlessConnection", "AsyncQlessEvents"]

_LOOK_AGAIN_S = 0.05


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
        self._subscription: AsyncSubscription | None = None

    async def start(self) -> None:
        """Subscribe, so that no later message is missed."""
        await self._subscribe()

    async def _subscribe(self) -> AsyncSubscription:
        if self._subscription is None:
            self._subscription = await (await self._connection()).subscribe(self._channels)
        return self._subscription

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> QlessEvent:
        subscription = await self._subscribe()
        try:
            message = await subscription.next()
        except TransportError:
            await self._unsubscribe()
            raise
        return read_event(message[1], message[2])

    async def read(self, timeout: Duration = 0, limit: int = 100) -> list[QlessEvent]:  # noqa: ASYNC109  both faces have it
        """Return the next messages; the first call subscribes.

        Args:
            timeout: How long to wait for the first: a duration, or seconds.
            limit: At most this many.

        Raises:
            TransportError: The subscription broke, or the server is silent for the URL's ``timeout``. Read again to
                resubscribe.
        """
        most, ends_at = check_count(limit, "limit"), now_ms() / 1000 + duration_s(timeout, "timeout")
        subscription = await self._subscribe()
        try:
            while True:
                messages = await subscription.read(most)
                left = ends_at - now_ms() / 1000
                if messages or left <= 0:
                    return [read_event(message[1], message[2]) for message in messages]
                await asyncio.sleep(min(left, _LOOK_AGAIN_S))
        except TransportError:
            await self._unsubscribe()
            raise

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.aclose()

    async def aclose(self) -> None:
        """End the subscription."""
        await self._unsubscribe()
        await super().aclose()
