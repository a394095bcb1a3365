"""What answers requests: one connection to the server for all queues, and the rules that hold for every route."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import InvalidNameError
from orchestration_queue.http.batching import AddBatcher
from orchestration_queue.http.dialects import Dialects
from orchestration_queue.http.messages import HttpError
from orchestration_queue.http.subscriptions import Subscriptions
from orchestration_queue.options import FORBIDDEN_IN_NAMES, MAX_NAME_LENGTH
from orchestration_queue.protocol.codec import find_codec
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import http_records
from orchestration_queue.protocol.operations.additions import Added, NewJob
from orchestration_queue.server import AsyncConnection

__all__ = ["Service"]

_MOST_QUEUES = 1024
"""Batchers kept; of more queues, the one used longest ago is dropped."""


class Service:
    """The queues of one server, over HTTP.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.
        queues: The queues that may be named; None allows all, an empty list none.
        compression: ``none`` or ``gzip``: how the data of jobs are written.
        chasqui: ChasquiMQ's queues to show.
        qless: qless's queues to show.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        queues: Sequence[str] | None = None,
        compression: str = "none",
        chasqui: Sequence[str] = (),
        qless: Sequence[str] = (),
    ) -> None:
        self.prefix = QueueKeys("q", prefix).prefix
        self.allowed = None if queues is None else frozenset(queues)
        self.codec = find_codec("json" if compression == "none" else compression).name
        self.connection = AsyncConnection.resolve(url, connection)
        self.dialects = Dialects(self.connection, chasqui, qless)
        self._is_lent = connection is not None
        self.subscriptions = Subscriptions(self.prefix)
        self.closing = asyncio.Event()
        self._waits: AsyncConnection | None = None
        self._waits_lock = asyncio.Lock()
        self.doctor_lock = asyncio.Lock()
        self._batchers: dict[str, AddBatcher] = {}
        self._started = time.monotonic()

    @property
    def uptime_ms(self) -> int:
        """How long it has been there."""
        return int((time.monotonic() - self._started) * 1000)

    @property
    def used_queues(self) -> int:
        """How many queues jobs were added to."""
        return len(self._batchers)

    def check_open(self) -> None:
        """Refuse work after shutdown began."""
        if self.closing.is_set():
            raise HttpError(503, "Proxy is shutting down")

    def check_allowed(self, name: str) -> None:
        """Refuse a queue that is not on the allow-list."""
        if self.allowed is not None and name not in self.allowed:
            raise HttpError(403, "Queue is not in the allowlist")

    def check_name(self, name: object) -> str:
        """Return a queue's name, checked in the words of glide-mq's proxy."""
        if not isinstance(name, str) or not name:
            raise HttpError(400, "Queue name must be a non-empty string")
        if len(name) > MAX_NAME_LENGTH:
            raise HttpError(400, f"Queue name must be at most {MAX_NAME_LENGTH} characters")
        if any(letter in name for letter in FORBIDDEN_IN_NAMES):
            raise HttpError(400, "Queue name must not contain curly braces or colons")
        return name

    def keys(self, name: str) -> QueueKeys:
        """Return the keys of a queue, after the checks that most routes share."""
        self.check_name(name)
        self.check_open()
        try:
            return QueueKeys(name, self.prefix)
        except InvalidNameError as error:
            raise HttpError(400, str(error)) from None

    def queue(self, name: str) -> AsyncQueue:
        """Return a client of a queue, after the same checks."""
        self.keys(name)
        return AsyncQueue(name, connection=self.connection, prefix=self.prefix, codec=self.codec)

    async def waiting_queue(self, name: str) -> AsyncQueue:
        """Return a client of a queue whose calls may block, after the same checks."""
        self.keys(name)
        return AsyncQueue(name, connection=await self.waits(), prefix=self.prefix, codec=self.codec)

    async def add(self, name: str, job: NewJob) -> Added:
        """Add a job, in one exchange with those that are added to the same queue meanwhile."""
        keys = self.keys(name)
        batcher = self._batchers.pop(name, None) or AddBatcher(self.connection, keys)
        self._batchers[name] = batcher
        if len(self._batchers) > _MOST_QUEUES:
            del self._batchers[next(iter(self._batchers))]
        return await batcher.add(job)

    async def audit(self, user: str, act: str, queue: str, subject: str) -> None:
        """Note on the server who did what."""
        await self.connection.execute(http_records.record_act(self.prefix, user, act, queue, subject))

    async def waits(self) -> AsyncConnection:
        """Return the connection for reads that block; each has a socket of its own meanwhile."""
        async with self._waits_lock:
            if self._waits is None:
                self._waits = await self.connection.duplicate()
            return self._waits

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Close when the context ends."""
        try:
            yield
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """End streams, refuse more work, and disconnect. Safe to call twice."""
        self.closing.set()
        await self.subscriptions.aclose()
        await self.dialects.aclose()
        if not self._is_lent:
            await self.connection.aclose()
        if self._waits is not None:
            waits, self._waits = self._waits, None
            await waits.aclose()
