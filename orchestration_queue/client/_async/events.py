"""Listening to what happens in queues, without a gap between two reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Self

from orchestration_queue.client._async.client import AsyncClient
from orchestration_queue.client.values import Deadline
from orchestration_queue.errors import UsageError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.events import Event, gap_after, place
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import event_log
from orchestration_queue.protocol.operations.conversation import all_good
from orchestration_queue.protocol.operations.job_output import is_position
from orchestration_queue.server import AsyncConnection

__all__ = ["AsyncEventReader", "AsyncQueueEvents", "checked_cursor", "gap_in"]

_NEW_ONLY = "$"
_TURN_MS = 50
"""How long to wait for one queue of several in a cluster, before it is another's turn."""


class AsyncEventReader(AsyncClient):
    """Reads the events of several queues on a connection of its own, each queue from its cursor on.

    Args:
        connection: The connection to duplicate.
        cursors: Queue by queue, the event after which to read.
        page: Most events of one queue in one read.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        cursors: Mapping[QueueKeys, str],
        *,
        page: int = event_log.EVENTS_PAGE,
    ) -> None:
        super().__init__(None, connection)
        self.cursors = dict(cursors)
        self._page = page
        self._duplicate: AsyncConnection | None = None

    async def read(self, wait_s: float) -> list[tuple[QueueKeys, Event]]:
        """Events that no read has returned before, waiting up to ``wait_s`` seconds for the first."""
        if self._duplicate is None:
            self._duplicate = await self._connection.duplicate()
        is_spread = len(self.cursors) > 1 and self._duplicate.is_cluster
        read = self._read_in_turn if is_spread else self._read_at_once
        by_queue = await read(self._duplicate, wait_s)
        for keys, events in by_queue.items():
            self.cursors[keys] = events[-1].id
        return [(keys, event) for keys, events in by_queue.items() for event in events]

    async def _read_at_once(self, connection: AsyncConnection, wait_s: float) -> dict[QueueKeys, list[Event]]:
        block_ms = max(1, round(wait_s * 1000))
        return await connection.run(event_log.events_since(self.cursors, block_ms, self._page), repeatable=True)

    async def _read_in_turn(self, connection: AsyncConnection, wait_s: float) -> dict[QueueKeys, list[Event]]:
        """In a cluster no command waits for queues on several servers: wait a little for each, and read all."""
        deadline = Deadline(wait_s)
        for awaited in cycle(self.cursors):
            turn_ms = max(1, min(_TURN_MS, round((deadline.remaining or 0) * 1000)))
            looks = [
                event_log.events_since({keys: cursor}, turn_ms if keys == awaited else 1, self._page)
                for keys, cursor in self.cursors.items()
            ]
            replies = all_good(await connection.pipeline([look.call for look in looks], repeatable=True))
            found: dict[QueueKeys, list[Event]] = {}
            for look, reply in zip(looks, replies, strict=True):
                found |= look.read(reply)
            if found or deadline.has_passed:
                return found
        return {}

    async def aclose(self) -> None:
        """Close the connection."""
        if self._duplicate is not None:
            await self._duplicate.aclose()
        self._duplicate = None


class AsyncQueueEvents(AsyncClient):
    """What happens in one queue, as it happens: an endless iterator of events.

    The queue keeps about its last 1,000 events. To resume after a break, pass the last event's ``id`` as ``after``.
    A reader that is too late for some events gets one of type ``gap`` in their place (see
    :attr:`Event.is_gap`); read the queue itself then. It may come without need when events are dropped in the very
    moment in which they are read, and does not come when the server lost its data.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to the server; events are read on a duplicate of it.
        prefix: First part of every key.
        after: Id of an event: read what came after it. ``0`` reads everything the queue still keeps, ``$`` what
            happens from entering the context (or the first read) on.

    Raises:
        InvalidNameError: The wire cannot carry the queue's name.
        UsageError: ``after`` is no event id.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        after: str = _NEW_ONLY,
    ) -> None:
        super().__init__(url, connection)
        self.name = name
        self.keys = QueueKeys(name, prefix)
        self._after = checked_cursor(after)
        self._wants_all = self._after != _NEW_ONLY
        self._reader: AsyncEventReader | None = None
        self._ahead: deque[Event] = deque()

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def _started(self) -> AsyncEventReader:
        """Return the reader. ``$`` becomes the newest event's id once, so that no later event is missed."""
        if self._reader is None:
            if self._after == _NEW_ONLY:
                self._after = await self._connection.look(event_log.last_event_id(self.keys))
            self._reader = AsyncEventReader(self._connection, {self.keys: self._after})
        return self._reader

    async def read(self, timeout: Duration | None = 0) -> list[Event]:  # noqa: ASYNC109  both faces have it
        """Return the next events, at most about 100; in place of dropped ones, one of type ``gap``.

        Args:
            timeout: How long to wait for the first: a duration, or seconds; None waits forever.

        Returns:
            The events in the order they happened; none when the time is up.
        """
        deadline = Deadline(timeout)
        reader = await self._started()
        if self._ahead:
            events, self._ahead = list(self._ahead), deque()
            return events
        while True:
            cursor = reader.cursors[self.keys]
            if events := [event for _, event in await reader.read(deadline.left)]:
                gap = await gap_in(self._connection, self.keys, cursor, events, wants_all=self._wants_all)
                return [gap, *events] if gap else events
            if deadline.has_passed:
                return []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._ahead:
            self._ahead.extend(await self.read(None))
        return self._ahead.popleft()

    async def aclose(self) -> None:
        """Stop listening and disconnect."""
        if self._reader is not None:
            await self._reader.aclose()
        await super().aclose()


async def gap_in(
    connection: AsyncConnection, keys: QueueKeys, cursor: str, events: Sequence[Event], *, wants_all: bool
) -> Event | None:
    """Return what was dropped between a cursor and the events read after it, if anything.

    Only a reader far behind, whose page was full, asks: one more exchange. From the beginning
    on, one that ``wants_all`` that is kept misses nothing.
    """
    if len(events) < event_log.EVENTS_PAGE or (wants_all and place(cursor) == (0, 0)):
        return None
    return gap_after(cursor, await connection.follow(event_log.oldest_event(keys)))


def checked_cursor(after: str) -> str:
    """Return a cursor: an event's id, ``0`` or ``$``.

    Raises:
        UsageError: It is something else.
    """
    if after == _NEW_ONLY or is_position(after):
        return str(after)
    raise UsageError(f"`after` must be an event's `id`, '0' for all events, or '$' for new ones; got {after!r}.")
