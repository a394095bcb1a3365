"""Events of a queue, as its ``events`` stream tells them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.protocol.call import Reply, text
from orchestration_queue.protocol.record import pairs

__all__ = ["Event", "read_events"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        id: Its place in the stream; pass it back to resume after it.
        type: The wire's word: ``added``, ``active``, ``completed``, ``failed``, ``retrying``, ``stalled``, ...
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
    def result(self) -> Any:
        """What a ``completed`` job returned; None for other events and for undecodable results."""
        try:
            return json.loads(self.fields["returnvalue"])
        except (KeyError, ValueError):
            return None


def read_events(reply: Reply) -> list[Event]:
    """Read an XRANGE reply, or the entries of one stream of an XREAD reply."""
    events = []
    for entry_id, flat in reply or ():
        fields = pairs(flat)
        events.append(Event(text(entry_id), fields.pop("event", ""), fields.pop("jobId", ""), fields))
    return events
