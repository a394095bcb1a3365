"""Autoclaim of messages whose worker went silent: find, claim and hand on.

The wire's own sweep counts such a message until it fails, and never delivers it. Here it goes on under a new entry
that is meant for this subscription alone, and the old one is acknowledged, so that the silent worker, should it wake,
has nothing left to settle.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestration_queue.protocol.call import Call, Operation, Reply, text
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.membership import Member, Message, read_message
from orchestration_queue.protocol.record import JobRecord

__all__ = ["Stalled", "claim", "entry", "hand_on", "last_sign", "stalled"]

_EVENTS_LENGTH = 1000

_LEDGER_TTL_S = 86_400

_STALLED = "job stalled more than maxStalledCount"


@dataclass(frozen=True, slots=True)
class Stalled:
    """An entry in a subscription's hands of which nothing was heard for a while."""

    entry_id: str
    idle_ms: int


def stalled(member: Member, min_ms: int, after: str = "-", count: int = 100) -> Operation[list[Stalled]]:
    """Entries that were handed out so long ago and are not settled, oldest first, a page at a time."""
    words = (member.subscription, "IDLE", min_ms, after, "+", count)

    def read(reply: Reply) -> list[Stalled]:
        return [Stalled(text(entry_id), int(idle_ms)) for entry_id, _, idle_ms, _ in reply]

    return Operation(Call("XPENDING", (member.keys.stream,), words), read)


def entry(member: Member, entry_id: str) -> Operation[Message | None]:
    """One entry of the stream; None when it was trimmed off."""

    def read(reply: Reply) -> Message | None:
        return read_message(*reply[0]) if reply else None

    return Operation(Call("XRANGE", (member.keys.stream,), (entry_id, entry_id)), read)


def last_sign(member: Member, message: Message) -> Operation[tuple[Lease, int] | None]:
    """What a message's record says of its lease, and its last sign of life, epoch ms; None when it was removed."""
    names = ("state", "lastActive", "opts")

    def read(reply: Reply) -> tuple[Lease, int] | None:
        if reply[0] is None:
            return None
        known = {name: text(value) for name, value in zip(names, reply, strict=True) if value is not None}
        return Lease(JobRecord(message.job_id, known), message.entry_id), int(known.get("lastActive", 0))

    return Operation(Call("HMGET", (member.keys.job(message.job_id),), names), read)


def claim(member: Member, message: Message, idle_ms: int) -> tuple[Call, Call]:
    """Take an entry unless another worker has taken it, and ask how often a worker was lost with its message."""
    words = (member.subscription, member.consumer, idle_ms, message.entry_id, "JUSTID")
    return Call("XCLAIM", (member.keys.stream,), words), Call("HGET", (member.ledger(message.job_id),), ("stalls",))


def hand_on(member: Member, message: Message, stalls: int, most: int, now_ms: int) -> list[Call]:
    """Let another worker have a claimed message; or fail it, when a worker was lost with it too often."""
    if stalls >= most:
        return [member.fail(message, _STALLED, now_ms)]
    ledger = member.ledger(message.job_id)
    told = ("MAXLEN", "~", _EVENTS_LENGTH, "*", "event", "stalled", "jobId", message.job_id)
    return [
        Call("HINCRBY", (ledger,), ("stalls", 1)),
        Call("EXPIRE", (ledger,), (_LEDGER_TTL_S,)),
        *member.requeue(message),
        Call("XADD", (member.keys.events,), told),
    ]
