"""How many jobs ended when, and how long they took: counters per minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.steps import Steps, all_good, chunks
from orchestration_queue.protocol.record import when
from orchestration_queue.states import JobState

__all__ = ["MINUTE_MS", "Metrics", "MetricsMinute", "metrics"]

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class MetricsMinute:
    """The jobs that ended within one minute.

    Attributes:
        at: When the minute began.
        count: How many there were.
        mean_duration: How long their last attempts took on average.
    """

    at: datetime
    count: int
    mean_duration: timedelta


@dataclass(frozen=True, slots=True)
class Metrics:
    """The jobs that ended in one way within a time, minute by minute.

    Attributes:
        kind: ``completed`` or ``failed``.
        kept: How many such jobs the queue still keeps, of any time.
        minutes: The minutes in which any ended, oldest first.
    """

    kind: JobState
    kept: int
    minutes: tuple[MetricsMinute, ...]

    @property
    def count(self) -> int:
        """How many ended within the time, kept or not."""
        return sum(minute.count for minute in self.minutes)


def metrics(keys: QueueKeys, kind: JobState, start_ms: int, end_ms: int) -> Steps[Metrics]:
    """Read the minutes from that of ``start_ms`` to that of ``end_ms``, both included; a day takes one trip.

    Only these minutes are asked for, since the wire drops old ones of busy queues only.
    """
    first = start_ms - start_ms % MINUTE_MS
    key, ended = (
        (keys.metrics_completed, keys.completed) if kind is JobState.COMPLETED else (keys.metrics_failed, keys.failed)
    )
    pieces = list(chunks(range(first, end_ms + 1, MINUTE_MS)))
    asked = [Call("HMGET", (key,), tuple(f"m:{at}:{part}" for at in piece for part in "cd")) for piece in pieces]
    kept, *replies = all_good((yield [Call("ZCARD", (ended,)), *asked]))
    minutes = [minute for piece, reply in zip(pieces, replies, strict=True) for minute in _read(piece, reply)]
    return Metrics(kind, kept, tuple(minutes))


def _read(minutes: Sequence[int], reply: Reply) -> list[MetricsMinute]:
    values = [float(value or 0) for value in reply]
    return [
        MetricsMinute(at, int(count), timedelta(milliseconds=round(total_ms / count)))
        for at_ms, count, total_ms in zip(minutes, values[::2], values[1::2], strict=True)
        if count > 0 and (at := when(at_ms)) is not None
    ]
