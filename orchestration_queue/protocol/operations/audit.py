"""The audit log: who did what over HTTP, as a stream that all queues of a prefix share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestration_queue.protocol.call import Call, Operation, Reply, text
from orchestration_queue.protocol.record import pairs, when, whole_number

__all__ = ["AuditEntry", "note", "recent"]

_MOST = 10_000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act.

    Attributes:
        at: When, by the server's clock.
        user: Who, by the name of the token; empty when none was needed.
        act: What was done.
        queue: In which queue; empty when it names none.
        subject: To which job, scheduler or flow; empty for the queue as a whole.
    """

    at: datetime | None
    user: str
    act: str
    queue: str
    subject: str


def _key(prefix: str) -> str:
    return f"{prefix}:audit"


def note(prefix: str, user: str, act: str, queue: str, subject: str) -> Call:
    """Append an act."""
    fields = ("user", user, "act", act, "queue", queue, "subject", subject)
    return Call("XADD", (_key(prefix),), ("MAXLEN", "~", _MOST, "*", *fields))


def recent(prefix: str, count: int) -> Operation[list[AuditEntry]]:
    """Return the last acts, newest first."""

    def read(reply: Reply) -> list[AuditEntry]:
        return [_entry(text(entry_id), pairs(fields)) for entry_id, fields in reply or ()]

    return Operation(Call("XREVRANGE", (_key(prefix),), ("+", "-", "COUNT", count)), read)


def _entry(entry_id: str, fields: dict[str, str]) -> AuditEntry:
    at = when(whole_number(entry_id.partition("-")[0]))
    return AuditEntry(at, *(fields.get(name, "") for name in ("user", "act", "queue", "subject")))
