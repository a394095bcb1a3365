"""The event stream of a queue: events after a position, its oldest and newest events, and gaps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.protocol.call import Call, Conversation, Operation, Reply, text
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs

__all__ = [
    "EVENTS_PAGE",
    "EVENT_TYPES",
    "FIRST_EVENT",
    "NEW_ONLY",
    "READER_LEASE_S",
    "STORED_READER_LEASE_S",
    "Event",
    "Position",
    "Tail",
    "entries_after",
    "events_since",
    "gap_after",
    "last_event_id",
    "newest_events",
    "oldest_event",
    "place",
    "read_ends",
    "read_events",
    "read_tail",
    "readers",
    "register_reader",
]

EVENT_TYPES = frozenset(
    ("active", "added", "cleaned", "completed", "delay-changed", "drained", "expired", "failed", "group-rate-limited",
     "paused", "priority-changed", "progress", "promoted", "released", "removed", "resumed", "retried", "retrying",
     "revoked", "stalled", "step", "suspended", "usage", "waiting-children")
)  # fmt: skip
"""The wire's types of events, and ``released`` and ``step``, which our workers add."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a queue.

    Attributes:
        id: Its position in the stream; pass it back to resume after it.
        type: The wire's word: ``added``, ``active``, ``completed``, ``failed``, ``retrying``, ``stalled``, ...; or
            ``gap``, which no server emits: see :attr:`is_gap`.
        job_id: The job it concerns. ``0`` for pause and resume, a count for ``cleaned``, ``drained``, ``retried``.
        fields: The event's other fields, as stored.
    """

    id: str
    type: str
    job_id: str
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def at(self) -> datetime:
        """When it happened, by the server's clock."""
        return datetime.fromtimestamp(int(self.id.partition("-")[0]) / 1000, UTC)

    @property
    def is_gap(self) -> bool:
        """Whether this replaces events that were dropped before they were read.

        Its id is the last event before them, its field ``oldest`` the id of the next that is kept.
        """
        return self.type == "gap"

    @property
    def result(self) -> Any:
        """What a ``completed`` job returned; None for other events and for undecodable results."""
        try:
            return json.loads(self.fields["returnvalue"])
        except (KeyError, ValueError):
            return None


def place(event_id: str) -> tuple[int, int]:
    """Return an event's id as a pair by which events are ordered."""
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds), int(number or 0)


def gap_after(cursor: str, oldest: str | None) -> Event | None:
    """Return the gap of a reader that has read up to a cursor; None without one.

    Args:
        cursor: Id of the last event that was read.
        oldest: Id of the oldest event that is kept; None if none was ever dropped.
    """
    if oldest is None or place(oldest) <= place(cursor):
        return None
    return Event(cursor, "gap", "", {"oldest": oldest})


def read_events(reply: Reply) -> list[Event]:
    """Read an XRANGE reply, or the entries of one stream of an XREAD reply."""
    events = []
    for entry_id, flat in reply or ():
        fields = pairs(flat)
        events.append(Event(text(entry_id), fields.pop("event", ""), fields.pop("jobId", ""), fields))
    return events


def readers(keys: QueueKeys) -> Operation[dict[str, str]]:
    """Read the registered readers of a queue's events, and the last event that each needs no more."""

    def read(reply: Reply) -> dict[str, str]:
        return {name: stored.partition(" ")[0] for name, stored in pairs(reply).items() if name}

    return Operation(Call("HGETALL", (keys.events_readers,)), read)


EVENTS_PAGE = 100
"""Maximum events of a queue per read. If a read returns fewer, there are no more."""

FIRST_EVENT = "0-0"
"""The position before a stream's first entry."""

NEW_ONLY = "$"
"""The position of the newest event."""

READER_LEASE_S = 60 * 60
"""How long a queue keeps unread events for a reader that no longer reads."""

STORED_READER_LEASE_S = 2 * 24 * 60 * 60
"""Likewise for a reader whose position is stored outside the queue, and which may be stopped for a while."""


def register_reader(keys: QueueKeys, reader: str, after: str, lease_s: int) -> Operation[str]:
    """Keep the events after a position until the reader's lease ends; return the position, also for ``$``."""
    return Operation(oq1.follow_events(keys, reader=reader, after=after, lease_ms=lease_s * 1000), text)


def last_event_id(keys: QueueKeys) -> Operation[str]:
    """Read the id of the queue's newest event, to listen from; the stream's beginning without one."""

    def read(reply: Reply) -> str:
        return text(reply[0][0]) if reply else FIRST_EVENT

    return Operation(Call("XREVRANGE", (keys.events,), ("+", "-", "COUNT", 1)), read)


def newest_events(keys: QueueKeys, count: int) -> Operation[list[Event]]:
    """Read the queue's newest events, the newest first."""
    return Operation(Call("XREVRANGE", (keys.events,), ("+", "-", "COUNT", count)), read_events)


def events_since(
    cursors: Mapping[QueueKeys, str], block_ms: int, count: int = EVENTS_PAGE
) -> Operation[dict[QueueKeys, list[Event]]]:
    """Read events of several queues, each after its cursor; wait up to ``block_ms`` for the first. Blocks."""
    by_stream = {keys.events: keys for keys in cursors}

    def read(reply: Reply) -> dict[QueueKeys, list[Event]]:
        return {by_stream[text(stream)]: read_events(entries) for stream, entries in reply or ()}

    call = Call(
        "XREAD",
        args=("COUNT", count, "BLOCK", block_ms, "STREAMS", *by_stream, *cursors.values()),
        near=next(iter(by_stream), None),
    )
    return Operation(call, read)


def oldest_event(keys: QueueKeys) -> Conversation[str | None]:
    """Return the id of the oldest event that is kept; None if no event was ever dropped."""
    (reply,) = yield [Call("XINFO", args=("STREAM", keys.events), near=keys.events)]
    if isinstance(reply, Exception):
        return None  # there are no longer any events
    facts = dict(zip(map(text, reply[::2]), reply[1::2], strict=True))
    # XTRIM leaves max-deleted-entry-id as it is, so that only the counts say whether entries were dropped.
    has_dropped = facts["entries-added"] > facts["length"] and facts["first-entry"]
    return text(facts["first-entry"][0]) if has_dropped else None


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a stream.

    Attributes:
        id: The entry at this position, even if it was trimmed since; reading continues after it.
        count: How many entries were ever added up to it; None if they were not counted.
    """

    id: str
    count: int | None


@dataclass(frozen=True, slots=True)
class Tail:
    """The extent of a stream.

    Attributes:
        last: Its end.
        dropped: How many of its entries were trimmed.
        oldest: Id of the first entry; None if it is empty.
    """

    last: Position
    dropped: int
    oldest: str | None

    def has_lost(self, at: Position) -> bool:
        """Whether entries after a position are gone. Without a count, only an entry before it rules this out."""
        if at.count is not None:
            return self.dropped > at.count
        return self.dropped > 0 and (self.oldest is None or place(self.oldest) > place(at.id))


EMPTY = Tail(Position(FIRST_EVENT, 0), 0, None)
"""A stream to which nothing was ever added."""


def read_ends(stream: str) -> Call:
    """Ask for the extent of a stream; see :func:`read_tail`."""
    return Call("XINFO", args=("STREAM", stream), near=stream)


def read_tail(reply: Reply) -> Tail:
    """Read the reply to :func:`read_ends`; a missing stream is empty.

    Raises:
        ServerError: The server refused for another reason.
    """
    if isinstance(reply, Exception):
        if "no such key" in str(reply):
            return EMPTY
        raise reply
    facts = dict(zip(map(text, reply[::2]), reply[1::2], strict=True))
    added, first = facts["entries-added"], facts["first-entry"]
    last = Position(text(facts["last-generated-id"]), added)
    return Tail(last, added - facts["length"], text(first[0]) if first else None)


def entries_after(stream: str, after: str, until: str, count: int) -> Call:
    """Return the call that reads the next entries of a range."""
    return Call("XRANGE", (stream,), (f"({after}", until, "COUNT", count))
