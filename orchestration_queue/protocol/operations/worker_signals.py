"""Signals to the workers of a queue: commands and their replies, wake-ups, and what is due."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from orchestration_queue.protocol.call import Call, Operation, Reply, Word, integer, text
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.lease import Failure, Postponement, Settlement, Suspension
from orchestration_queue.protocol.record import pairs

__all__ = [
    "Command",
    "Tick",
    "WorkerReply",
    "WorkerSignal",
    "WorkerVerb",
    "read_command",
    "read_replies",
    "read_signals",
    "reply",
    "send",
    "tick",
    "unregistered_of",
    "wake_for_due",
    "wake_worker",
    "wake_workers",
    "watch",
    "watch_retries",
]


def create_signal_group(keys: QueueKeys) -> Call:
    """Create the same group for signals to one worker each; the server replies BUSYGROUP if it exists."""
    return Call("XGROUP", args=("CREATE", keys.wake_one, GROUP, "0", "MKSTREAM"), near=keys.wake_one)


def join_signal_group(keys: QueueKeys, consumer: str) -> Call:
    """Add the consumer to that group immediately: the number of consumers decides whether a signal is worth sending."""
    return Call("XGROUP", args=("CREATECONSUMER", keys.wake_one, GROUP, consumer), near=keys.wake_one)


def leave_signal_group(keys: QueueKeys, consumer: str) -> Call:
    """Remove the consumer from that group; the reply is how many signals it had not acknowledged."""
    return Call("XGROUP", args=("DELCONSUMER", keys.wake_one, GROUP, consumer), near=keys.wake_one)


def drop_signals(keys: QueueKeys, entry_ids: Sequence[str]) -> tuple[Call, Call]:
    """Acknowledge signals, and remove them from their stream."""
    return Call("XACK", (keys.wake_one,), (GROUP, *entry_ids)), Call("XDEL", (keys.wake_one,), tuple(entry_ids))


_MOST_SIGNALS = 100


@dataclass(frozen=True, slots=True)
class WorkerSignal:
    """A signal to the workers of a queue.

    Attributes:
        id: Its entry in the stream of signals.
        cancelled: The running job that was cancelled; None for other signals.
        command: A command to some of the workers, as stored; None for other signals.
        released: The running job that was taken from its worker; None for other signals.
    """

    id: str
    cancelled: str | None = None
    command: str | None = None
    released: str | None = None

    @property
    def is_due(self) -> bool:
        """Whether it means that something is due, or is of a type that this version does not know."""
        return self.cancelled is None and self.command is None and self.released is None

    @property
    def at_ms(self) -> int:
        """When it was sent, by the server's clock, epoch ms."""
        return int(self.id.partition("-")[0])


def read_signals(after: Mapping[str, str], block_ms: int) -> Operation[dict[str, list[WorkerSignal]]]:
    """Read signals, by stream. Blocks.

    Args:
        after: By stream, the entry after which to read. In a cluster, all streams must be in one slot.
        block_ms: How long to wait for the first.
    """
    args: tuple[Word, ...] = ("COUNT", _MOST_SIGNALS, "BLOCK", block_ms, "STREAMS", *after, *after.values())

    def read(reply: Reply) -> dict[str, list[WorkerSignal]]:
        return {
            text(stream): [_read_signal(entry_id, pairs(fields)) for entry_id, fields in entries]
            for stream, entries in reply or ()
        }

    return Operation(Call("XREAD", args=args, near=next(iter(after))), read)


def _read_signal(entry_id: Reply, fields: Mapping[str, str]) -> WorkerSignal:
    return WorkerSignal(text(entry_id), *map(fields.get, ("cancel", "control", "released")))


def wake_workers(keys: QueueKeys) -> Call:
    """Signal all workers to check for jobs, and to ask what is due next."""
    return oq1.wake(keys)


def wake_worker(keys: QueueKeys) -> Call:
    """Signal one idle worker that a list holds a job."""
    return oq1.wake_one(keys)


def wake_for_due(keys: QueueKeys, now_ms: int) -> Call:
    """Signal one idle worker, if needed, about jobs that became ready or due, or are due sooner than workers know."""
    return oq1.wake_due(keys, now_ms=now_ms)


WorkerVerb: TypeAlias = Literal["ping", "pause", "resume", "stop", "concurrency"]

_SIGNALS_KEPT, _SIGNALS_TTL_MS = 1000, 60_000
_REPLIES_TTL_MS = 60_000


@dataclass(frozen=True, slots=True)
class Command:
    """A command to some workers of a queue.

    Attributes:
        id: Identifies the stream of its replies.
        verb: What to do.
        workers: The ids of the workers.
        value: The number of slots, for ``concurrency``.
    """

    id: str
    verb: str
    workers: tuple[str, ...]
    value: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """A worker's reply to a command.

    Attributes:
        worker: The worker's id.
        answered: Whether it replied in time; otherwise the attributes below are unknown.
        problem: Why it did not obey; None if it did.
        is_paused: Whether it takes no jobs now, for any reason.
        concurrency: How many jobs it runs at a time.
        active_jobs: How many jobs it runs now.
        latency: Time from the command to its reply.
    """

    worker: str
    answered: bool = False
    problem: str | None = None
    is_paused: bool = False
    concurrency: int | None = None
    active_jobs: int = 0
    latency: timedelta | None = None

    @property
    def has_obeyed(self) -> bool:
        """Whether it replied that it obeyed."""
        return self.answered and self.problem is None


def unregistered_of(keys: QueueKeys, workers: Sequence[str]) -> Operation[list[str]]:
    """Read which of some ids no worker has registered."""

    def read(answer: Reply) -> list[str]:
        return [worker for worker, stored in zip(workers, answer, strict=True) if stored is None]

    return Operation(Call("MGET", tuple(map(keys.worker, workers))), read)


def send(keys: QueueKeys, command: Command) -> tuple[Call, Call]:
    """Signal a command to the queue's workers. Send the calls as one transaction."""
    stored = dump_json([command.id, command.verb, command.workers, command.value])
    entry = ("MAXLEN", "~", _SIGNALS_KEPT, "*", "control", stored)
    return Call("XADD", (keys.wake,), entry), Call("PEXPIRE", (keys.wake,), (_SIGNALS_TTL_MS,))


def read_command(stored: str) -> Command | None:
    """Return a command from its signal; None if it can't be read."""
    try:
        id_, verb, workers, value = json.loads(stored)
        return Command(str(id_), str(verb), tuple(map(str, workers)), None if value is None else int(value))
    except (ValueError, TypeError):
        return None


def reply(keys: QueueKeys, command: Command, worker: str, facts: Mapping[str, object]) -> tuple[Call, Call]:
    """Reply to a command. Send the calls as one transaction."""
    key = keys.replies(command.id)
    return Call("XADD", (key,), ("*", "worker", worker, "facts", dump_json(facts))), Call(
        "PEXPIRE", (key,), (_REPLIES_TTL_MS,)
    )


def read_replies(
    keys: QueueKeys, command: Command, after: str, block_ms: int
) -> Operation[tuple[str, list[WorkerReply]]]:
    """Read the last entry's id and the replies after an entry; wait up to ``block_ms`` for the first. Blocks."""
    key = keys.replies(command.id)
    args = ("BLOCK", block_ms, "STREAMS", key, after)

    def read(answer: Reply) -> tuple[str, list[WorkerReply]]:
        entries = answer[0][1] if answer else ()
        last = text(entries[-1][0]) if entries else after
        return last, [_read_reply(pairs(fields)) for _, fields in entries]

    return Operation(Call("XREAD", args=args, near=key), read)


def _read_reply(fields: Mapping[str, str]) -> WorkerReply:
    try:
        facts: dict[str, Any] = json.loads(fields.get("facts", "{}"))
        return WorkerReply(
            fields.get("worker", ""),
            answered=True,
            problem=facts.get("problem"),
            is_paused=bool(facts.get("paused")),
            concurrency=facts.get("concurrency"),
            active_jobs=int(facts.get("activeJobs") or 0),
        )
    except (ValueError, TypeError, AttributeError):
        return WorkerReply(fields.get("worker", ""), answered=True, problem="its answer cannot be read")


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one tick.

    Attributes:
        moved: How many jobs it made ready.
        due_ms: When the next delayed job or limited group is due, epoch ms; -1 without one.
        repeatable: How many repeatable jobs the queue has.
        is_paused: Whether the queue is paused.
        rate_max: The queue's maximum starts per window; 0 for no limit.
        rate_window_ms: The length of a window.
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
    """Make due jobs ready, about 100, and read the queue's settings.

    With ``heal``, it also corrects the count of active list jobs.
    """
    call = oq1.tick(keys, now_ms=now_ms, heal=heal)
    return Operation(call, _read_tick)


def _read_tick(reply: Reply) -> Tick:
    moved, due_ms, repeatable, is_paused, rate_max, rate_window_ms, server_ms, look_ms = reply
    return Tick(moved, due_ms, repeatable, bool(is_paused), rate_max, rate_window_ms, server_ms, look_ms)


def watch(keys: QueueKeys, consumer: str, now_ms: int, until_ms: int, *, fires: bool) -> Operation[int]:
    """Read when a worker that ticks by ``until_ms`` anyway must tick sooner; -1 if it need not.

    Two workers at a time watch for what is due next. ``fires`` means that this one runs repeatable jobs. A worker that
    leaves passes 0 for ``until_ms``.
    """
    return Operation(oq1.watch(keys, now_ms=now_ms, consumer=consumer, until_ms=until_ms, fires=fires), integer)


def watch_retries(
    keys: QueueKeys, consumer: str, now_ms: int, until_ms: int, settle: Sequence[Settlement]
) -> Operation[int] | None:
    """Watch, as :func:`watch` does, for jobs that are due again; None if none is due before the usual tick.

    Sent with the outcomes, it makes a second worker watch, so that the jobs are on time even if this worker dies.
    """
    soonest_ms = min((due for each in settle if (due := _due_again_ms(each, now_ms)) is not None), default=None)
    if soonest_ms is None or soonest_ms > until_ms:
        return None
    return watch(keys, consumer, now_ms, until_ms, fires=False)


def _due_again_ms(settlement: Settlement, now_ms: int) -> int | None:
    """Return when a job with this outcome is due again, epoch ms; None if it has ended or waits for something else."""
    match settlement:
        case Postponement(until_ms=until_ms):
            return until_ms
        case Suspension(timeout_ms=timeout_ms, resumes=True) if timeout_ms:
            return now_ms + timeout_ms
        case Failure(lease=lease, max_attempts=most, backoff_ms=backoff_ms) if lease.record.attempts_made + 1 < most:
            return now_ms + backoff_ms
    return None
