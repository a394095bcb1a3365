"""The service behind all routes: one connection to the server for all queues, and the checks that routes share.

Jobs that concurrent requests add to one queue are combined: one exchange at a time, with all waiting jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import InvalidNameError, ServerError
from orchestration_queue.http.messages import HttpError
from orchestration_queue.http.subscriptions import Subscriptions
from orchestration_queue.http.tails import Tails
from orchestration_queue.options import FORBIDDEN_IN_NAMES, MAX_NAME_LENGTH
from orchestration_queue.protocol.codec import find_codec
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import additions, http_records
from orchestration_queue.protocol.operations.additions import Added, NewJob, Outcome
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires import wire_queues

__all__ = ["AddBatcher", "Service", "add_each"]


async def add_each(connection: AsyncConnection, keys: QueueKeys, jobs: Sequence[NewJob]) -> list[Outcome]:
    """Add many jobs, 100 per call; a refused job does not affect the others.

    If the server refuses a whole call, because it is full, for example, the jobs after it are not sent.
    """
    portions = list(additions.portions(jobs))
    at_ms = now_ms()
    if len(jobs) == 1 or not all(job.is_plain for job in jobs):
        return [one for some in portions for one in await _add_singly(connection, keys, some, at_ms)]
    calls = ([additions.add_many(keys, some, at_ms).call, *additions.waking(keys, some, at_ms)] for some in portions)
    answers = await connection.pipelines(calls)  # each is built while the server works on the one before
    outcomes: list[Outcome] = []
    for some, (reply, *_) in zip(portions, answers, strict=False):
        is_refused = isinstance(reply, ServerError)
        outcomes += [reply] * len(some) if is_refused else additions.read_each(keys, some, reply)
    return outcomes + outcomes[-1:] * (len(jobs) - len(outcomes))


async def _add_singly(
    connection: AsyncConnection, keys: QueueKeys, jobs: Sequence[NewJob], at_ms: int
) -> list[Outcome]:
    calls = [additions.add(keys, job, at_ms).call for job in jobs]
    replies = await connection.pipeline([*calls, *additions.waking(keys, jobs, at_ms)])
    return additions.read_each(keys, jobs, replies[: len(jobs)])


class AddBatcher:
    """Adds the jobs of one queue.

    Args:
        connection: The connection.
        keys: The queue.
    """

    def __init__(self, connection: AsyncConnection, keys: QueueKeys) -> None:
        self._connection, self._keys = connection, keys
        self._waiting: list[tuple[NewJob, asyncio.Future[Added]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, job: NewJob) -> Added:
        """Add one job.

        Raises:
            InvalidOptionError: The server refused its options.
            ServerError: The server refused it.
            TransportError: The server could not be reached.
        """
        future: asyncio.Future[Added] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())
        return await future

    async def _send_all(self) -> None:
        while self._waiting:
            # What other requests add during the exchange is the next batch (decision 0017).
            batch, self._waiting = self._waiting, []
            try:
                outcomes: Sequence[Added | Exception] = await add_each(
                    self._connection, self._keys, [job for job, _ in batch]
                )
            except Exception as error:
                outcomes = [error] * len(batch)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.done():
                    continue  # its request was cancelled; the job is added anyway
                if isinstance(outcome, Added):
                    future.set_result(outcome)
                else:
                    future.set_exception(outcome)
        # No await since the last look, so that no job is left waiting.
        self._task = None


_MOST_QUEUES = 1024
"""Maximum batchers that are kept; the least recently used one is dropped."""


class Service:
    """The queues of one server, over HTTP.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.
        queues: The queues that may be named; None allows all, an empty list none.
        compression: ``none`` or ``gzip``: how the data of jobs is written.
        wires: Names of queues of other wires to show, by wire.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        queues: Sequence[str] | None = None,
        compression: str = "none",
        wires: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.prefix = QueueKeys("q", prefix).prefix
        self.allowed = None if queues is None else frozenset(queues)
        self.codec = find_codec("json" if compression == "none" else compression).name
        self.connection = AsyncConnection.resolve(url, connection)
        self.wires = {
            wire.name: wire.load("http").Served(self.connection, names)
            for wire, names in wire_queues(wires or {}).items()
        }
        self._is_lent = connection is not None
        self.subscriptions = Subscriptions(self.prefix)
        self.tails = Tails(self)
        self.closing = asyncio.Event()
        self._waits: AsyncConnection | None = None
        self._waits_lock = asyncio.Lock()
        self.doctor_lock = asyncio.Lock()
        self._batchers: dict[str, AddBatcher] = {}
        self._started = time.monotonic()

    @property
    def uptime_ms(self) -> int:
        """Milliseconds since it was created."""
        return int((time.monotonic() - self._started) * 1000)

    @property
    def used_queues(self) -> int:
        """Number of queues to which jobs were added."""
        return len(self._batchers)

    def check_open(self) -> None:
        """Refuse requests after shutdown has begun."""
        if self.closing.is_set():
            raise HttpError(503, "Proxy is shutting down")

    def check_allowed(self, name: str) -> None:
        """Refuse a queue that is not on the allow-list."""
        if self.allowed is not None and name not in self.allowed:
            raise HttpError(403, "Queue is not in the allowlist")

    def check_name(self, name: object) -> str:
        """Check a queue's name, with the messages of glide-mq's proxy, and return it."""
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
        """Add a job, in one exchange with others that are added to the same queue at the same time."""
        keys = self.keys(name)
        batcher = self._batchers.pop(name, None) or AddBatcher(self.connection, keys)
        self._batchers[name] = batcher
        if len(self._batchers) > _MOST_QUEUES:
            del self._batchers[next(iter(self._batchers))]
        return await batcher.add(job)

    async def audit(self, user: str, act: str, queue: str, subject: str) -> None:
        """Write an entry to the audit log on the server."""
        await self.connection.execute(http_records.record_act(self.prefix, user, act, queue, subject))

    async def waits(self) -> AsyncConnection:
        """Return the connection for blocking reads, which use a socket each."""
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
        """End streams, refuse further requests, and disconnect. Safe to call twice."""
        self.closing.set()
        await self.subscriptions.aclose()
        await self.tails.aclose()
        for served in self.wires.values():
            await served.aclose()
        if not self._is_lent:
            await self.connection.aclose()
        if self._waits is not None:
            waits, self._waits = self._waits, None
            await waits.aclose()
