"""One event reader for all waiters: a queue's events are read once for all calls that wait on it.

There is no background task. One of the waiters reads for all; when its wait ends, it passes the reading on to another.
So a listener has no task or thread that could outlive its client, and costs nothing while no call waits.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from orchestration_queue.client.values import ENDINGS, AsyncFlag, Deadline
from orchestration_queue.errors import TransportError, UsageError
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_records
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection

__all__ = ["AsyncListener", "AsyncWatch"]

_LONGEST_READ_S = 1.0
"""Maximum duration of a read, after which the reader notices that its client was closed."""


class AsyncWatch:
    """Waits for the ends of one queue's jobs, from entering its context on.

    Args:
        listener: Reads the events.
        keys: The queue.
        job_id: The job; None watches all jobs until :meth:`focus` names one.

    Attributes:
        record: The job's record when the context was entered; None without a job, or without its record.
    """

    def __init__(self, listener: AsyncListener, keys: QueueKeys, job_id: str | None = None) -> None:
        self._listener = listener
        self.keys = keys
        self.job_id = job_id
        self.record: JobRecord | None = None
        self.heard: deque[Event] = deque()
        self.flag = AsyncFlag()

    async def __aenter__(self) -> Self:
        await self._listener.join(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.leave(self)

    def focus(self, job_id: str) -> None:
        """Watch one job only from now on. Its earlier events are kept."""
        self._listener.focus(self, job_id)

    async def next_ending(self, wait: Deadline) -> Event | None:
        """Return the next event that may have finished the job; None if the wait ended without one.

        Raises:
            UsageError: The client was closed meanwhile.
            TransportError: The server is unreachable.
        """
        try:
            while not self.heard:
                if not await self._listener.take_turn(self, wait.left) and wait.has_passed:
                    return None
            endings = [self.heard.popleft() for _ in range(len(self.heard))]
        finally:
            self._listener.pass_on(self.keys)
        # A job can be removed after its outcome was reported; the outcome counts.
        return next((event for event in reversed(endings) if event.type != "removed"), endings[-1])


@dataclass(slots=True)
class _Feed:
    """One queue's events.

    Attributes:
        cursor: The last event that was read; None until the first watch has determined where to begin.
        by_job: The watches, by the job that each watches.
        is_read: Whether a waiter is reading.
        resting: The other waiters, in the order in which they arrived.
    """

    cursor: str | None = None
    by_job: dict[str | None, set[AsyncWatch]] = field(default_factory=dict)
    is_read: bool = False
    resting: dict[AsyncWatch, None] = field(default_factory=dict)

    def add(self, watch: AsyncWatch) -> None:
        """Deliver events to a watch from now on."""
        self.by_job.setdefault(watch.job_id, set()).add(watch)

    def drop(self, watch: AsyncWatch) -> None:
        """Stop delivering events to a watch."""
        alike = self.by_job.get(watch.job_id, set())
        alike.discard(watch)
        if not alike:
            self.by_job.pop(watch.job_id, None)

    def tell(self, events: list[Event]) -> None:
        """Deliver events to their watches."""
        self.cursor = events[-1].id
        for event in events:
            if event.type in ENDINGS:
                for watch in (*self.by_job.get(event.job_id, ()), *self.by_job.get(None, ())):
                    watch.heard.append(event)
                    watch.flag.up()


class AsyncListener:
    """Reads the events of the watched queues, with one read at a time per queue.

    Several queues take several reads: in a cluster, they can be on different servers.

    Args:
        connection: The connection to duplicate.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self._shared = connection
        self._connection: AsyncConnection | None = None
        self._is_closed = False
        self._start_afresh()

    def _notice_fork(self) -> None:
        if self._process != os.getpid():
            self._start_afresh()

    def _start_afresh(self) -> None:
        """Reset all waiters: at the start, and in a forked child, where they are the parent's."""
        self._process = os.getpid()
        self._feeds: dict[QueueKeys, _Feed] = {}
        # Guards everything else, for a few lines at a time. The async version doesn't need it, and it costs little
        # there.
        self._lock = threading.Lock()

    def watch(self, keys: QueueKeys, job_id: str | None = None) -> AsyncWatch:
        """Watch the ends of a queue's jobs, or of one of them; a context manager."""
        return AsyncWatch(self, keys, job_id)

    async def join(self, watch: AsyncWatch) -> None:
        """Deliver to a watch all events from now on, then read its job's record."""
        self._notice_fork()
        with self._lock:
            self._check_open()
            feed = self._feeds.setdefault(watch.keys, _Feed())
            feed.add(watch)
        # With this cursor, everything that happens from now on comes after it.
        newest = event_log.last_event_id(watch.keys) if feed.cursor is None else None
        record = job_records.job(watch.keys, watch.job_id) if watch.job_id is not None else None
        calls = [operation.call for operation in (newest, record) if operation is not None]
        try:
            replies = all_good(await self._shared.pipeline(calls, repeatable=True))
        except BaseException:
            self.leave(watch)
            raise
        if record is not None:
            watch.record = record.read(replies[-1])
        if newest is not None:
            with self._lock:
                feed.cursor = feed.cursor or newest.read(replies[0])

    def leave(self, watch: AsyncWatch) -> None:
        """Remove a watch, and its queue's feed if it was the last."""
        with self._lock:
            feed = self._feeds[watch.keys]
            feed.drop(watch)
            if not feed.by_job:
                del self._feeds[watch.keys]
        self.pass_on(watch.keys)

    def focus(self, watch: AsyncWatch, job_id: str) -> None:
        """Deliver to a watch only one job's events."""
        with self._lock:
            feed = self._feeds[watch.keys]
            feed.drop(watch)
            watch.job_id = job_id
            watch.heard = deque(event for event in watch.heard if event.job_id == job_id)
            feed.add(watch)

    async def take_turn(self, watch: AsyncWatch, seconds: float) -> bool:
        """Read for all, or rest until woken if another waiter reads; return whether the watch has new events."""
        with self._lock:
            self._check_open()
            if watch.heard:
                return True
            feed = self._feeds[watch.keys]
            is_mine = not feed.is_read
            if is_mine:
                feed.is_read = True
            else:
                feed.resting[watch] = None
        try:
            if is_mine:
                await self._read(watch.keys, feed, min(seconds, _LONGEST_READ_S))
            else:
                await watch.flag.wait(seconds)
        finally:
            with self._lock:
                if is_mine:
                    feed.is_read = False
                else:
                    del feed.resting[watch]
        return bool(watch.heard)

    async def _read(self, keys: QueueKeys, feed: _Feed, seconds: float) -> None:
        cursors = {keys: feed.cursor or event_log.FIRST_EVENT}
        connection = self._connection or await self._connect()
        try:
            # At least 1 ms, since BLOCK 0 waits forever.
            operation = event_log.events_since(cursors, max(1, round(seconds * 1000)))
            by_queue = await connection.run(operation, repeatable=True)
        except TransportError:
            self._check_open()
            raise
        if events := by_queue.get(keys):
            with self._lock:
                feed.tell(events)

    def pass_on(self, keys: QueueKeys) -> None:
        """Wake a resting waiter when the reader stops, unless another is reading already."""
        with self._lock:
            feed = self._feeds.get(keys)
            if feed and feed.resting and not feed.is_read:
                next(iter(feed.resting)).flag.up()

    async def _connect(self) -> AsyncConnection:
        opened = await self._shared.duplicate()
        with self._lock:
            if self._connection is None and not self._is_closed:
                self._connection = opened
                return opened
            current = self._connection
        # Another task was first, or closed the client, while this one waited.
        await opened.aclose()
        self._check_open()
        return current or await self._connect()

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError(
                "The connection was closed during a wait for a job; keep it open until all waits have ended."
            )

    async def aclose(self) -> None:
        """Wake all waiters with an error, and close the connection. The reader notices within a second."""
        self._notice_fork()
        with self._lock:
            self._is_closed = True
            connection, self._connection = self._connection, None
            for feed in self._feeds.values():
                for watch in feed.resting:
                    watch.flag.up()
        if connection is not None:
            await connection.aclose()
