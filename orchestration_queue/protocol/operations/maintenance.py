"""What a worker does from time to time: its tick, and taking over the messages of lost workers."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration_queue.protocol.call import Call, Operation, Reply, integer, text
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.membership import Member, Message, read_message
from orchestration_queue.protocol.record import JobRecord

__all__ = ["Stalled", "Tick", "claim", "entry", "hand_on", "last_sign", "stalled", "tick", "watch"]


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one tick.

    Attributes:
        moved: Jobs it made ready.
        due_ms: When the next delayed job or limited group is due, epoch ms; -1 if none is.
        repeatable: How many repeatable jobs the queue has.
        is_paused: Whether the queue is paused.
        rate_max: The queue's maximum starts per window; 0 for no limit.
        rate_window_ms: That window.
        server_ms: The server's own time, epoch ms.
        schedules_due_ms: When repeatable jobs are due for evaluation, epoch ms; -1 for never.
    """

    moved: int
    due_ms: int
    repeatable: int
    is_paused: bool
    rate_max: int
    rate_window_ms: int
    server_ms: int
    schedules_due_ms: int = -1


def tick(keys: QueueKeys, now_ms: int, *, heal: bool = False) -> Operation[Tick]:
    """Make ready what is due (at most 1,000 jobs), and read the queue's settings; one exchange.

    With ``heal``, the count of list jobs in workers' hands is corrected too.
    """
    call = oq1.tick(keys, now_ms=now_ms, heal=heal)
    return Operation(call, _read)


def _read(reply: Reply) -> Tick:
    moved, due_ms, repeatable, is_paused, rate_max, rate_window_ms, server_ms, look_ms = reply
    return Tick(moved, due_ms, repeatable, bool(is_paused), rate_max, rate_window_ms, server_ms, look_ms)


def watch(keys: QueueKeys, consumer: str, now_ms: int, until_ms: int, *, fires: bool) -> Operation[int]:
    """Read when a worker is to tick again that does so by ``until_ms`` anyway; -1 for no sooner.

    Two workers watch for what is due next. With ``fires`` this one fires repeatable jobs; one that leaves says 0.
    """
    return Operation(oq1.watch(keys, now_ms=now_ms, consumer=consumer, until_ms=until_ms, fires=fires), integer)


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
    """Return a message's lease by its record, and its last sign of life, epoch ms; None when it was removed."""
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
