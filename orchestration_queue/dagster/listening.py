"""A bounded listen to one queue's events: from a cursor, until something of interest happens or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from orchestration_queue.options import milliseconds
from orchestration_queue.protocol.call import Call, text
from orchestration_queue.protocol.events import Event
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import reading
from orchestration_queue.server import Connection

__all__ = ["BEGINNING", "Heard", "listen"]

BEGINNING = "0-0"
"""A cursor before every event."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a listen brought.

    Attributes:
        events: The events of interest, oldest first.
        cursor: Where the next listen starts: nothing before it needs to be heard again.
        passed: How many events went by, of interest or not.
        lost_after: Set when the server had dropped old events before they were heard: the cursor they came after.
    """

    events: tuple[Event, ...]
    cursor: str
    passed: int
    lost_after: str | None


def listen(
    connection: Connection,
    keys: QueueKeys,
    cursor: str,
    *,
    interesting: Callable[[Event], bool],
    wait: timedelta,
    limit: int,
) -> Heard:
    """Listen from a cursor on.

    Returns as soon as a read brought something of interest; what else had happened by then is in it too.

    Args:
        connection: Where to listen.
        keys: The queue.
        cursor: Id of the last event heard, or :data:`BEGINNING`.
        interesting: Which events to return.
        wait: The longest time to listen.
        limit: Most events to read in one go.
    """
    lost_after = cursor if _lost_some(connection, keys, cursor) else None
    deadline = time.monotonic() + wait.total_seconds()
    passed = 0
    while True:
        left_ms = max(1, milliseconds(timedelta(seconds=deadline - time.monotonic())))
        heard = connection.run(reading.events_since({keys: cursor}, left_ms, limit), repeatable=True)
        events = heard.get(keys, [])
        passed += len(events)
        cursor = events[-1].id if events else cursor
        found = tuple(event for event in events if interesting(event))
        if found or time.monotonic() >= deadline:
            return Heard(found, cursor, passed, lost_after)


def _lost_some(connection: Connection, keys: QueueKeys, cursor: str) -> bool:
    """Whether events after the cursor are gone, as far as the server can tell.

    The server keeps about the last thousand events and drops them in blocks, so a cursor whose own event is gone
    has, but for one case in a hundred, lost some that came after it.
    """
    if cursor == BEGINNING:
        ask = Call("XINFO", args=("STREAM", keys.events), near=keys.events)
        added = connection.execute(ask) if _exists(connection, keys) else None
        return added is not None and _field(added, "entries-added") > _field(added, "length")
    return _exists(connection, keys) and not connection.execute(Call("XRANGE", (keys.events,), (cursor, cursor)))


def _exists(connection: Connection, keys: QueueKeys) -> bool:
    return bool(connection.execute(Call("EXISTS", (keys.events,))))


def _field(described: list[object], name: str) -> int:
    """One number of an XINFO reply."""
    names = [text(word) for word in described[::2]]
    return int(str(described[1::2][names.index(name)]))
