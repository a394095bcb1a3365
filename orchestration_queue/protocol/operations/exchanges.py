"""Exchanges of a worker: take jobs, renew leases, report outcomes, reclaim stalled jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from orchestration_queue.errors import InvalidOptionError, LeaseLostError
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, text, texts
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.lease import Completion, Delivery, Failure, Lease, Settlement
from orchestration_queue.protocol.operations.notifications import NONE_PENDING, PendingNotifications, read_notifications
from orchestration_queue.protocol.outcome import Verdict, settled
from orchestration_queue.protocol.record import JobRecord, entry_job_id, pairs

__all__ = [
    "ExchangeResult",
    "Reclaimed",
    "Renewal",
    "Verdict",
    "Wakeup",
    "Why",
    "add_children",
    "attempt_notes",
    "exchange",
    "held_signals",
    "listen",
    "news",
    "next_entry",
    "notice",
    "read_group",
    "read_pending",
    "reclaim",
    "relist",
    "renew",
    "sweep_suspended",
]

_MOST_RECLAIMED = 100
_MOST_SIGNALS = 1000
_VERDICTS = {verdict.value: verdict for verdict in Verdict}


class Why(Enum):
    """Why an exchange returned no more jobs."""

    UNASKED = ""
    ENOUGH = "enough"
    """It returned all that was requested; there may be more."""
    EMPTY = "empty"
    FULL = "full"
    """The queue's global concurrency is used up."""
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class ExchangeResult:
    """The result of one exchange.

    Attributes:
        verdicts: The server's verdict on each outcome, in order.
        started: The jobs that started.
        letters: Dead letters that the call could not add, and stored for :func:`~.dead_letters.post`.
        why: Why it returned no more jobs.
        pending: Notifications still to send to waiting jobs: in a cluster those in other queues; otherwise those that
            one call did not reach.
        due_ms: When the worker must tick for jobs that it postponed, epoch ms; -1 if others do.
    """

    verdicts: tuple[Verdict, ...]
    started: tuple[Lease, ...]
    letters: tuple[bytes, ...]
    why: Why
    pending: PendingNotifications = NONE_PENDING
    due_ms: int = -1


def exchange(
    keys: QueueKeys,
    consumer: str,
    now_ms: int,
    *,
    settle: Sequence[Settlement] = (),
    hand_back: Sequence[Delivery] = (),
    start: Sequence[Delivery] = (),
    want: int = 0,
    honor_pause: bool = True,
    cluster: bool = False,
    dead_letter: str = "",
    skip_events: bool = False,
    skip_metrics: bool = False,
) -> Operation[ExchangeResult]:
    """Report outcomes, return unstarted jobs, start delivered ones, and take up to ``want`` more, in one exchange.

    A job that fails for good adds a dead letter to the queue ``dead_letter``, and its dependents are decided. In a
    ``cluster``, other queues may be on other servers: their dead letters and notifications are left in
    :attr:`ExchangeResult.letters` and :attr:`ExchangeResult.pending`. ``skip_events`` and ``skip_metrics`` omit
    completions from events and metrics.
    """
    call = oq1.exchange(
        keys,
        settlements=[settled(settlement) for settlement in settle],
        hand_backs=[oq1.HandBack(job_id=back.job_id, entry_id=back.entry_id) for back in hand_back],
        deliveries=[oq1.Delivered(job_id=delivery.job_id, entry_id=delivery.entry_id) for delivery in start],
        now_ms=now_ms,
        group=GROUP,
        consumer=consumer,
        want=want,
        honor_pause=honor_pause,
        cluster=cluster,
        dead_letter=dead_letter,
        skip_events=skip_events,
        skip_metrics=skip_metrics,
    )
    return Operation(call, _read_exchange_result)


def attempt_notes(keys: QueueKeys, worker: str, host: str, now_ms: int, settle: Sequence[Settlement]) -> Call | None:
    """Record failed attempts, and completed ones of tracked jobs, in the jobs' histories; sent before they settle."""
    notes = [note for settlement in settle if (note := _note(settlement)) is not None]
    return oq1.note_attempts(keys, worker=worker, host=host, now_ms=now_ms, attempts=notes) if notes else None


def _note(settlement: Settlement) -> oq1.AttemptNote | None:
    lease = settlement.lease
    if isinstance(settlement, Failure):
        words = (settlement.kind, settlement.error, settlement.reason, settlement.traceback)
    elif isinstance(settlement, Completion) and lease.record.is_tracked:
        words = ("", "", "", "")
    else:
        return None
    return oq1.AttemptNote(lease.job_id, lease.taken_ms, lease.stalled_count, *words)


def _read_exchange_result(reply: Reply) -> ExchangeResult:
    verdicts, started, news, why, letters, job_ids = reply
    jobs = iter(started)
    return ExchangeResult(
        tuple([_VERDICTS[letter] for letter in text(verdicts)]),
        tuple(
            Lease(JobRecord(text(job_id), pairs(fields)), text(entry_id))
            for job_id, entry_id, fields in zip(jobs, jobs, jobs, strict=True)
        ),
        tuple(letters),
        Why(text(why)),
        read_notifications(news, job_ids),
    )


def notice(keys: QueueKeys, parent_queue: str, parent_id: str, member: str) -> Call:
    """Notify a parent, of any queue, that its job ``member`` has completed; a repeated notification counts once."""
    parent = QueueKeys(parent_queue, keys.prefix)
    return glidemq.complete_child(
        parent_deps_key=parent.deps(parent_id),
        parent_job_key=parent.job(parent_id),
        parent_stream_key=parent.stream,
        parent_events_key=parent.events,
        deps_member=member,
        parent_id=parent_id,
    )


def read_group(keys: QueueKeys, consumer: str, count: int, block_ms: int) -> Operation[list[Delivery]]:
    """Take up to ``count`` ready jobs of the stream, waiting up to ``block_ms`` for the first."""
    read = ("GROUP", GROUP, consumer, "COUNT", count, "BLOCK", block_ms, "STREAMS", keys.stream, ">")
    return Operation(Call("XREADGROUP", args=read, near=keys.stream), _read_deliveries)


@dataclass(frozen=True, slots=True)
class Wakeup:
    """What ended a blocking read.

    Attributes:
        deliveries: Jobs of the stream.
        signals: Signals to this worker only that a list holds a job.
        due: Signals that something is due sooner than workers know.
    """

    deliveries: list[Delivery]
    signals: list[str]
    due: list[str] = field(default_factory=list)


def listen(keys: QueueKeys, consumer: str, count: int, block_ms: int) -> Operation[Wakeup]:
    """Take jobs as :func:`read_group` does, or signals. Each job and each signal wakes one waiting worker."""
    streams = ("STREAMS", keys.stream, keys.wake_one, ">", ">")
    read = ("GROUP", GROUP, consumer, "COUNT", count, "BLOCK", block_ms, *streams)

    def read_wakeup(reply: Reply) -> Wakeup:
        found = {text(stream): entries for stream, entries in reply or ()}
        signals, due = _signals(found.get(keys.wake_one, ()))
        return Wakeup(_deliveries(found.get(keys.stream, ())), signals, due)

    return Operation(Call("XREADGROUP", args=read, near=keys.stream), read_wakeup)


def _signals(entries: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Separate signals that a list holds a job from those that something is due."""
    ready: list[str] = []
    due: list[str] = []
    for entry_id, fields in entries:
        (due if "due" in pairs(fields or ()) else ready).append(text(entry_id))
    return ready, due


def held_signals(keys: QueueKeys, consumer: str) -> Operation[list[str]]:
    """Read the signals that were delivered to the consumer and not acknowledged."""
    oldest = ("-", "+", _MOST_SIGNALS, consumer)

    def ids(reply: Reply) -> list[str]:
        return [text(entry_id) for entry_id, *_ in reply]

    return Operation(Call("XPENDING", (keys.wake_one,), (GROUP, *oldest)), ids)


def news(keys: QueueKeys, after: str, signal: str, block_ms: int) -> Operation[Wakeup]:
    """Wait up to ``block_ms`` for a job of the stream after an entry, or a signal after another, without taking them.

    The result contains only the signals.
    """
    streams = ("STREAMS", keys.stream, keys.wake_one, after, signal)

    def read_wakeup(reply: Reply) -> Wakeup:
        found = {text(stream): entries for stream, entries in reply or ()}
        return Wakeup([], *_signals(found.get(keys.wake_one, ())))

    return Operation(Call("XREAD", args=("COUNT", 1, "BLOCK", block_ms, *streams), near=keys.stream), read_wakeup)


def next_entry(keys: QueueKeys, after: str, block_ms: int) -> Call:
    """Wait up to ``block_ms`` for a job of the stream after an entry, without taking it."""
    return Call("XREAD", args=("COUNT", 1, "BLOCK", block_ms, "STREAMS", keys.stream, after), near=keys.stream)


def read_pending(keys: QueueKeys, consumer: str, count: int = 1000) -> Operation[list[Delivery]]:
    """Read the stream's jobs that were delivered to this consumer and are neither settled nor taken over."""
    read = ("GROUP", GROUP, consumer, "COUNT", count, "STREAMS", keys.stream, "0")
    return Operation(Call("XREADGROUP", args=read, near=keys.stream), _read_deliveries)


def _read_deliveries(reply: Reply) -> list[Delivery]:
    return _deliveries(reply[0][1] if reply else ())


def _deliveries(entries: Iterable[Any]) -> list[Delivery]:
    # A deleted entry is still pending, without fields.
    return [Delivery(entry_job_id(fields), text(entry_id)) for entry_id, fields in entries]


class Renewal(Enum):
    """The result of renewing a lease."""

    LOST = 0
    """The job was removed, has ended, or is with another worker."""
    RENEWED = 1
    REVOKED = 2
    """Renewed, but the job was cancelled."""


def renew(keys: QueueKeys, leases: Sequence[Lease], now_ms: int) -> Operation[list[Renewal]]:
    """Renew the leases of started jobs."""
    # Start time and stalled count identify the lease, in jobs that Node workers started too (decision 0004).
    held = [
        oq1.Held(job_id=lease.job_id, taken_ms=lease.taken_ms, stalled_count=lease.stalled_count) for lease in leases
    ]
    call = oq1.renew(keys, leases=held, now_ms=now_ms)
    return Operation(call, lambda reply: [Renewal(integer(answer)) for answer in reply])


def add_children(
    keys: QueueKeys, lease: Lease, jobs: Sequence[oq1.NewJob], now_ms: int, *, until_ended: bool = False
) -> Operation[list[str]]:
    """Add jobs of the same queue as children of a running job, which can wait for them. Sent twice, it adds them once.

    Args:
        keys: The queue.
        lease: The running job, which must still be ours.
        jobs: At most about 1,000, each with a custom id and no parent.
        now_ms: Epoch milliseconds by the caller's clock.
        until_ended: Whether the job, if it waits, waits for its children to end with any outcome, not for their
            success.

    Returns:
        The operation. It reads the ids of the jobs that were added now; existing ones become children, too.

    Raises:
        LeaseLostError: By the operation: the job is no longer ours, or was revoked, and nothing was added.
        InvalidOptionError: By the operation: a job costs more than its token bucket holds; it was not added.
    """
    call = oq1.add_children(
        keys,
        jobs=jobs,
        job_id=lease.job_id,
        taken_ms=lease.taken_ms,
        stalled_count=lease.stalled_count,
        now_ms=now_ms,
        until_ended=until_ended,
    )

    def read(reply: Reply) -> list[str]:
        if reply == b"lost":
            raise LeaseLostError(keys.queue, lease.job_id)
        answers = texts(reply)
        if (refusal := next((word for word in answers if word.startswith("ERR:")), None)) is not None:
            name = jobs[answers.index(refusal)].custom_id
            raise InvalidOptionError(
                f"Child {name!r} costs more than its token bucket holds, so it could never start; "
                "lower its cost or raise the capacity."
            )
        return [word for word in answers if word != "duplicate"]

    return Operation(call, read)


def relist(keys: QueueKeys, consumer: str, now_ms: int, known: Iterable[str]) -> Call:
    """Return jobs to their lists that this consumer started without learning of it; it has the ``known`` ones."""
    return oq1.relist(keys, now_ms=now_ms, consumer=consumer, known=[oq1.Known(job_id=job_id) for job_id in known])


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """The result of an autoclaim of stalled jobs.

    Attributes:
        retried: How many jobs are ready again.
        failed: Ids of the jobs that failed because they stalled too often.
        has_more: There may be more; call again.
        letters: Dead letters that the call did not add, and stored for :func:`~.dead_letters.post`.
        pending: Notifications still to send to jobs that wait for the failed and expired ones.
        timed_out: How many suspended jobs failed because their timeout expired.
    """

    retried: int
    failed: tuple[str, ...]
    has_more: bool
    letters: tuple[bytes, ...]
    pending: PendingNotifications
    timed_out: int


def reclaim(
    keys: QueueKeys,
    consumer: str,
    idle_ms: int,
    max_stalled: int,
    lock_ms: int,
    now_ms: int,
    *,
    dead_letter: str = "",
    cluster: bool = False,
) -> Operation[Reclaimed]:
    """Take over stalled jobs, at most about 1,000 of the stream and of the lists each.

    A job that stalled more than ``max_stalled`` times fails, with a dead letter as in :func:`exchange`. Up to 100
    suspended jobs whose timeout has expired fail, too.
    """
    call = oq1.reclaim(
        keys,
        now_ms=now_ms,
        group=GROUP,
        consumer=consumer,
        limit=_MOST_RECLAIMED,
        min_idle_ms=idle_ms,
        max_stalled_count=max_stalled,
        lock_duration_ms=lock_ms,
        dead_letter=dead_letter,
        cluster=cluster,
    )

    def read(reply: Reply) -> Reclaimed:
        retried, failed, more, letters, news, job_ids, timed_out = reply
        pending = read_notifications(news, job_ids)
        return Reclaimed(integer(retried), tuple(texts(failed)), integer(more) == 1, tuple(letters), pending, timed_out)

    return Operation(call, read)


def sweep_suspended(keys: QueueKeys, now_ms: int) -> Call:
    """Fail suspended jobs whose timeout has expired."""
    return glidemq.sweep_suspended(keys, metrics_key=keys.metrics_failed, now_ms=now_ms, key_prefix=keys.base + ":")
