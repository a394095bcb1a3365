"""Read the events of queues, without missing any between two reads."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import cycle, groupby
from operator import itemgetter
from typing import Self
from uuid import uuid4

from orchestration_queue._logging import get_logger
from orchestration_queue.client._async.client import AsyncClient
from orchestration_queue.client.values import Deadline
from orchestration_queue.errors import ServerError, UsageError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import event_log
from orchestration_queue.protocol.operations.event_log import NEW_ONLY, Event, gap_after, place
from orchestration_queue.protocol.operations.job_output import is_position
from orchestration_queue.server import AsyncConnection

__all__ = [
    "AsyncEventReader",
    "AsyncQueueEvents",
    "AsyncRegistration",
    "AsyncShardedEvents",
    "check_cursor",
    "gap_in",
]

_log = get_logger(__name__)
_TURN_MS = 50
"""In a cluster: how long to wait for one queue before reading the next."""


_RENEW_S = 20
"""How long events stay readable after they were read, at least: a client may have stored an earlier position."""


class AsyncRegistration:
    """Makes queues keep the events that a reader has not read, until its lease ends.

    A user who may not write can't register. The reader then gets only what the queue keeps anyway.

    Args:
        connection: The server.
        name: The reader's name; default: a new one.
        lease_s: How long the queues keep unread events after the last renewal.

    Attributes:
        taken: The last event of each queue that the caller has got; the caller updates it.
    """

    def __init__(
        self, connection: AsyncConnection, name: str | None = None, lease_s: int = event_log.READER_LEASE_S
    ) -> None:
        self._connection = connection
        self._name = name or uuid4().hex
        self._lease_s = lease_s
        self.taken: dict[QueueKeys, str] = {}
        self._released: dict[QueueKeys, str] = {}
        self._renew_at = 0.0

    async def start(self, cursors: Mapping[QueueKeys, str]) -> dict[QueueKeys, str]:
        """Register; return the position in each queue, with the newest event's id for ``$``. One exchange."""
        self._released = await self._register(cursors)
        self.taken = dict(self._released)
        return dict(self._released)

    async def renew(self) -> None:
        """Renew the lease if it is time, and release the events that had been taken at the previous renewal."""
        if time.monotonic() >= self._renew_at:
            await self._register(self._released)
            self._released = dict(self.taken)

    async def _register(self, cursors: Mapping[QueueKeys, str]) -> dict[QueueKeys, str]:
        self._renew_at = time.monotonic() + _RENEW_S
        asked = [event_log.register_reader(keys, self._name, at, self._lease_s) for keys, at in cursors.items()]
        replies = await self._connection.pipeline([one.call for one in asked], repeatable=True)
        found = dict(cursors)
        for keys, one, reply in zip(cursors, asked, replies, strict=True):
            if not isinstance(reply, ServerError):
                found[keys] = one.read(reply)
                continue
            _log.info("Unread events of queue %r are not kept for this reader: %s", keys.queue, reply)
            if reply.code == "NOPERM":
                self._renew_at = math.inf
            if found[keys] == NEW_ONLY:
                found[keys] = await self._connection.look(event_log.last_event_id(keys))
        return found


class AsyncEventReader(AsyncClient):
    """Reads the events of several queues on its own connection, from a cursor per queue.

    Args:
        connection: The connection to duplicate.
        cursors: By queue, the id of the event after which to read.
        page: Maximum events of one queue per read.
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
        """Return events that were not returned before; wait up to ``wait_s`` seconds for the first."""
        if self._duplicate is None:
            self._duplicate = await self._connection.duplicate()
        is_spread = len(self.cursors) > 1 and self._duplicate.is_cluster
        read = self._read_in_turn if is_spread else self._read_at_once
        by_queue = await read(self._duplicate, wait_s)
        for keys, events in by_queue.items():
            self.cursors[keys] = events[-1].id
        return [(keys, event) for keys, events in by_queue.items() for event in events]

    async def _read_at_once(self, connection: AsyncConnection, wait_s: float) -> dict[QueueKeys, list[Event]]:
        # At least 1, since BLOCK 0 waits forever.
        block_ms = max(1, round(wait_s * 1000))
        return await connection.run(event_log.events_since(self.cursors, block_ms, self._page), repeatable=True)

    async def _read_in_turn(self, connection: AsyncConnection, wait_s: float) -> dict[QueueKeys, list[Event]]:
        """Wait briefly for each queue in turn, and read all: in a cluster, no command waits on several servers."""
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
    """The events of one queue, as they happen: an endless iterator.

    The queue keeps all events from those that your program took 20 seconds ago on, up to a million events or 256 MiB,
    while it reads and for an hour after it took or waited for the last one. To resume within that time, in this process
    or another, pass the last event's ``id`` as ``after``. Otherwise a queue keeps about its last 1,000 events. If
    events were dropped before they were read, the reader returns one of type ``gap`` instead (see
    :attr:`Event.is_gap`); read the queue itself in that case. A gap can be reported unnecessarily if events are dropped
    while they are being read, and is not reported if the server lost its data.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to the server; events are read on a duplicate of it.
        prefix: First part of every key.
        after: Read events after this id. ``0`` reads all events that the queue still keeps, ``$`` those from entering
            the context (or the first read) on.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: ``after`` is not an event id.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        after: str = NEW_ONLY,
    ) -> None:
        super().__init__(url, connection)
        self.name = name
        self.keys = QueueKeys(name, prefix)
        self._after = check_cursor(after)
        self._wants_all = self._after != NEW_ONLY
        self._registration = AsyncRegistration(self._connection)
        self._reader: AsyncEventReader | None = None
        self._ahead: deque[Event] = deque()

    async def __aenter__(self) -> Self:
        await self._start_reader()
        return self

    async def _start_reader(self) -> AsyncEventReader:
        """Return the reader. ``$`` is replaced with the newest event's id once, so that no later event is missed."""
        if self._reader is None:
            self._reader = AsyncEventReader(self._connection, await self._registration.start({self.keys: self._after}))
        return self._reader

    async def read(self, timeout: Duration | None = 0) -> list[Event]:  # noqa: ASYNC109  both faces have it
        """Return the next events, at most about 100. One of type ``gap`` replaces dropped ones.

        Args:
            timeout: How long to wait for the first: a duration, or seconds; None waits forever.

        Returns:
            The events in the order in which they happened; an empty list if the timeout expired.
        """
        deadline = Deadline(timeout)
        reader = await self._start_reader()
        events, self._ahead = list(self._ahead) or await self._next_page(reader, deadline), deque()
        if events:
            self._registration.taken[self.keys] = events[-1].id
        return events

    async def _next_page(self, reader: AsyncEventReader, deadline: Deadline) -> list[Event]:
        while True:
            await self._registration.renew()
            cursor = reader.cursors[self.keys]
            if events := [event for _, event in await reader.read(deadline.left)]:
                gap = await gap_in(self._connection, self.keys, cursor, events, wants_all=self._wants_all)
                return [gap, *events] if gap else events
            if deadline.has_passed:
                return []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        reader = await self._start_reader()
        if self._ahead:
            await self._registration.renew()
        else:
            self._ahead.extend(await self._next_page(reader, Deadline(None)))
        event = self._ahead.popleft()
        self._registration.taken[self.keys] = event.id
        return event

    async def aclose(self) -> None:
        """Stop reading and close the connection."""
        if self._reader is not None:
            await self._reader.aclose()
        await super().aclose()


async def gap_in(
    connection: AsyncConnection, keys: QueueKeys, cursor: str, events: Sequence[Event], *, wants_all: bool
) -> Event | None:
    """Return which events were dropped between a cursor and the events read after it; None if none were.

    Only a reader far behind, whose page was full, needs one more exchange for it. A reader that starts from ``0`` and
    ``wants_all`` events misses nothing.
    """
    if len(events) < event_log.EVENTS_PAGE or (wants_all and place(cursor) == (0, 0)):
        return None
    return gap_after(cursor, await connection.follow(event_log.oldest_event(keys)))


def check_cursor(after: str) -> str:
    """Return a cursor: an event's id, ``0`` or ``$``.

    Raises:
        UsageError: It is something else.
    """
    if after == NEW_ONLY or is_position(after):
        return str(after)
    raise UsageError(f"`after` must be an event's `id`, '0' for all events, or '$' for new ones; got {after!r}.")


class AsyncShardedEvents(AsyncClient):
    """The events of all shards, on one connection: an endless iterator of pairs of a shard's name and an event.

    The events of one shard come in order; those of different shards don't. A ``gap`` replaces events of its shard that
    were dropped before they were read. :meth:`AsyncShardedQueue.events` returns this.
    """

    def __init__(self, connection: AsyncConnection, shards: Sequence[QueueKeys], after: Mapping[str, str]) -> None:
        super().__init__(None, connection)
        names = {keys.queue for keys in shards}
        if not isinstance(after, Mapping) or not names.issuperset(after):
            raise UsageError(
                f"`after` must map shards' names to events' ids, got {after!r}; pass the `cursors` of a reader."
            )
        self._after = {keys: check_cursor(after.get(keys.queue, "$")) for keys in shards}
        self._whole = {keys for keys, cursor in self._after.items() if cursor != "$"}
        self._keys = {keys.queue: keys for keys in shards}
        self._registration = AsyncRegistration(connection)
        self._reader: AsyncEventReader | None = None
        self._ahead: deque[tuple[str, Event]] = deque()

    @property
    def cursors(self) -> dict[str, str]:
        """By shard, the event after which the next read continues; ``$`` before the first."""
        after = self._after if self._reader is None else self._reader.cursors
        return {keys.queue: cursor for keys, cursor in after.items()}

    async def __aenter__(self) -> Self:
        await self._start_reader()
        return self

    async def _start_reader(self) -> AsyncEventReader:
        if self._reader is None:
            self._after = await self._registration.start(self._after)
            self._reader = AsyncEventReader(self._connection, self._after)
        return self._reader

    async def read(self, timeout: Duration | None = 0) -> list[tuple[str, Event]]:  # noqa: ASYNC109  both faces have it
        """Return the next events, each with its shard's name; an empty list if the timeout expired.

        Args:
            timeout: How long to wait for the first: a duration, or seconds; None waits forever.
        """
        deadline = Deadline(timeout)
        reader = await self._start_reader()
        pairs, self._ahead = list(self._ahead) or await self._next_page(reader, deadline), deque()
        self._registration.taken |= {self._keys[shard]: event.id for shard, event in pairs}
        return pairs

    async def _next_page(self, reader: AsyncEventReader, deadline: Deadline) -> list[tuple[str, Event]]:
        while True:
            await self._registration.renew()
            before = dict(reader.cursors)
            found = await reader.read(deadline.left)
            pairs: list[tuple[str, Event]] = []
            for keys, here in groupby(found, key=itemgetter(0)):
                events = [event for _, event in here]
                wants_all = keys in self._whole
                gap = await gap_in(self._connection, keys, before[keys], events, wants_all=wants_all)
                pairs += [(keys.queue, event) for event in ([gap, *events] if gap else events)]
            if pairs or deadline.has_passed:
                return pairs

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, Event]:
        reader = await self._start_reader()
        if self._ahead:
            await self._registration.renew()
        else:
            self._ahead.extend(await self._next_page(reader, Deadline(None)))
        shard, event = self._ahead.popleft()
        self._registration.taken[self._keys[shard]] = event.id
        return shard, event

    async def aclose(self) -> None:
        """Stop reading and close the connection."""
        if self._reader is not None:
            await self._reader.aclose()
        await super().aclose()
