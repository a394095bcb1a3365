"""The state of a queue: its counts, its workers' position in the stream, and its metrics by minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from orchestration_queue.protocol.call import Call, Conversation, Operation, Reply, all_good, chunks, integer, text
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations import shares
from orchestration_queue.protocol.operations.event_log import FIRST_EVENT
from orchestration_queue.protocol.record import pairs, when
from orchestration_queue.states import JobState

__all__ = [
    "MINUTE_MS",
    "JobCounts",
    "Metrics",
    "MetricsMinute",
    "count",
    "counts",
    "ended_by_minute",
    "finished_count",
    "groups",
    "handed_out_until",
    "last_delivered",
    "metrics",
    "oldest_ready_ms",
    "without_group",
]

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class MetricsMinute:
    """The jobs that ended within one minute.

    Attributes:
        at: When the minute began.
        count: How many jobs ended.
        mean_duration: How long their last attempts took on average.
    """

    at: datetime
    count: int
    mean_duration: timedelta


@dataclass(frozen=True, slots=True)
class Metrics:
    """The jobs that ended with one outcome within a period, by minute.

    Attributes:
        kind: ``completed`` or ``failed``.
        kept: How many such jobs the queue still keeps, from any time.
        minutes: The minutes in which any ended, oldest first.
    """

    kind: JobState
    kept: int
    minutes: tuple[MetricsMinute, ...]

    @property
    def count(self) -> int:
        """How many jobs ended within the period, kept or not."""
        return sum(minute.count for minute in self.minutes)


def metrics(keys: QueueKeys, kind: JobState, start_ms: int, end_ms: int) -> Conversation[Metrics]:
    """Read the minutes from that of ``start_ms`` to that of ``end_ms``, both included. A day takes one exchange.

    It requests exactly these minutes, since the wire drops old ones of busy queues only.
    """
    first = start_ms - start_ms % MINUTE_MS
    key, ended = (
        (keys.metrics_completed, keys.completed) if kind is JobState.COMPLETED else (keys.metrics_failed, keys.failed)
    )
    pieces = list(chunks(range(first, end_ms + 1, MINUTE_MS)))
    asked = [Call("HMGET", (key,), tuple(f"m:{at}:{part}" for at in piece for part in "cd")) for piece in pieces]
    kept, *replies = all_good((yield [Call("ZCARD", (ended,)), *asked]))
    minutes = [minute for piece, reply in zip(pieces, replies, strict=True) for minute in _read_minutes(piece, reply)]
    return Metrics(kind, kept, tuple(minutes))


def ended_by_minute(keys: QueueKeys, kind: JobState, first: int, last: int) -> Conversation[dict[int, int]]:
    """Read how many jobs ended in each of some minutes, counted from the epoch. Minutes in which none ended are absent.

    A third of the cost of :func:`metrics`, for pages that show many queues.
    """
    key = keys.metrics_completed if kind is JobState.COMPLETED else keys.metrics_failed
    fields = _count_fields(first, last)
    replies = all_good((yield [Call("HMGET", (key,), tuple(piece)) for piece in chunks(fields)]))
    counts = (count for reply in replies for count in reply)
    return {minute: int(count) for minute, count in enumerate(counts, first) if count}


@lru_cache(maxsize=8)
def _count_fields(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"m:{minute * MINUTE_MS}:c" for minute in range(first, last + 1))


def _read_minutes(minutes: Sequence[int], reply: Reply) -> list[MetricsMinute]:
    values = [float(value or 0) for value in reply]
    return [
        MetricsMinute(at, int(count), timedelta(milliseconds=round(total_ms / count)))
        for at_ms, count, total_ms in zip(minutes, values[::2], values[1::2], strict=True)
        if count > 0 and (at := when(at_ms)) is not None
    ]


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How many jobs of a queue are in each state.

    Attributes:
        waiting: Ready to be taken.
        active: With a worker.
        delayed: Due later, prioritized and not yet promoted, or waiting for a retry.
        completed: Completed and kept.
        failed: Failed for good and kept.
        suspended: Suspended by their handlers until a signal arrives.
    """

    waiting: int
    active: int
    delayed: int
    completed: int
    failed: int
    suspended: int = 0


def counts(keys: QueueKeys) -> Conversation[JobCounts]:
    """Count the queue's jobs by state, in one exchange."""
    replies = yield [
        Call("XLEN", (keys.stream,)),
        Call("XPENDING", (keys.stream,), (GROUP,)),
        Call("LLEN", (keys.lifo,)),
        Call("LLEN", (keys.priority,)),
        Call("GET", (keys.list_active,)),
        Call("ZCARD", (keys.scheduled,)),
        Call("ZCARD", (keys.completed,)),
        Call("ZCARD", (keys.failed,)),
        Call("ZCARD", (keys.suspended,)),
        shares.waiting(keys),
    ]
    pending = without_group(replies.pop(1), [0])[0]
    entries, lifo, priority, list_active, delayed, completed, failed, suspended, shared = all_good(replies)
    return JobCounts(
        # The counts are read one after the other: jobs may have been delivered in between.
        waiting=max(0, entries - pending) + lifo + priority + max(0, int(shared or 0)),
        # Other libraries let this count fall below zero (glidemq-weaknesses, W36).
        active=pending + max(0, int(list_active or 0)),
        delayed=delayed,
        completed=completed,
        failed=failed,
        suspended=suspended,
    )


def count(keys: QueueKeys) -> Conversation[int]:
    """Count the jobs that are ready or with a worker, in one exchange."""
    entries, lifo, priority, list_active, shared = all_good(
        (
            yield [
                Call("XLEN", (keys.stream,)),
                Call("LLEN", (keys.lifo,)),
                Call("LLEN", (keys.priority,)),
                Call("GET", (keys.list_active,)),
                shares.waiting(keys),
            ]
        )
    )
    return int(entries + lifo + priority) + max(0, int(list_active or 0)) + max(0, int(shared or 0))


def finished_count(keys: QueueKeys, state: JobState) -> Operation[int]:
    """Read how many completed, or failed, jobs the queue keeps."""
    return Operation(Call("ZCARD", (keys.completed if state is JobState.COMPLETED else keys.failed,)), integer)


def without_group(reply: Reply, default: Reply) -> Reply:
    """Return a reply about the workers' group, or the default if no worker has created the group or its stream yet."""
    if isinstance(reply, Exception):
        if any(sign in str(reply) for sign in ("NOGROUP", "no such key")):
            return default
        raise reply
    return reply


def groups(keys: QueueKeys, *more: Call) -> Conversation[tuple[list[dict[str, str]], list[Reply]]]:
    """Return the groups that read the queue's stream, in the server's words, and the replies to further calls."""
    described, *replies = yield [Call("XINFO", args=("GROUPS", keys.stream), near=keys.stream), *more]
    flat = without_group(described, [])
    # Some values are numbers, or absent.
    words = [[word if isinstance(word, bytes) else str(word).encode() for word in group] for group in flat]
    return [pairs(group) for group in words], all_good(replies)


def handed_out_until(keys: QueueKeys) -> Conversation[str]:
    """Return the id of the last stream entry that was delivered to a worker; the stream's beginning without one."""
    described, _ = yield from groups(keys)
    return last_delivered(described)


def last_delivered(described: Sequence[Mapping[str, str]]) -> str:
    """Return the same, from the description of the groups."""
    return next((group["last-delivered-id"] for group in described if group["name"] == GROUP), FIRST_EVENT)


def oldest_ready_ms(keys: QueueKeys) -> Conversation[int | None]:
    """Return when the oldest ready job of the stream became ready; None without one. Two exchanges.

    Prioritized and LIFO jobs are not considered: their lists don't record when they became ready.
    """
    last = yield from handed_out_until(keys)
    (entries,) = all_good((yield [Call("XRANGE", (keys.stream,), (f"({last}", "+", "COUNT", 1))]))
    return int(text(entries[0][0]).partition("-")[0]) if entries else None
