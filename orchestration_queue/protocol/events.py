"""Events of a queue, as its ``events`` stream holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.protocol.call import Reply, text
from orchestration_queue.protocol.record import pairs

__all__ = ["EVENT_TYPES", "Event", "gap_after", "place", "read_events"]

EVENT_TYPES = frozenset(
    ("active", "added", "cleaned", "completed", "delay-changed", "drained", "expired", "failed", "group-rate-limited",
     "paused", "priority-changed", "progress", "promoted", "released", "removed", "resumed", "retried", "retrying",
     "revoked", "stalled", "suspended", "usage", "waiting-children")
)  # fmt: skip
"""The wire's words for what happens, and ``released``, which our workers add."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        id: Its place in the stream; pass it back to resume after it.
        type: The wire's word: ``added``, ``active``, ``completed``, ``failed``, ``retrying``, ``stalled``, ...; or
            ``gap``, which no server tells: see :attr:`is_gap`.
        job_id: The job it is about. ``0`` for pause and resume, a count for ``cleaned``, ``drained``, ``retried``.
        fields: What else the event carries, as stored.
    """

    id: str
    type: str
    job_id: str
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def at(self) -> datetime:
        """When, by the server's clock."""
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
    """Return an event's id as what it is ordered by."""
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds), int(number or 0)


def gap_after(cursor: str, oldest: str | None) -> Event | None:
    """Return the gap for a reader that had read up to a cursor when this is the oldest event kept; None without one.

    Args:
        cursor: Id of the last event that was read.
        oldest: Id of the oldest event that is kept; None when none was ever dropped.
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
