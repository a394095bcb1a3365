"""Suspended jobs: signal them, and see what they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, optional_text, text
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import when
from orchestration_queue.protocol.signals import Signal, read_signals
from orchestration_queue.states import JobState

__all__ = ["SuspendInfo", "signal", "suspend_info"]


@dataclass(frozen=True, slots=True)
class SuspendInfo:
    """Why and since when a job is suspended.

    Attributes:
        reason: What its handler gave as the reason; None without one.
        suspended_at: Since when.
        timeout: How long it waits for a signal before it fails; None waits for ever.
        signals: Those that ended its earlier suspensions.
    """

    reason: str | None
    suspended_at: datetime | None
    timeout: timedelta | None
    signals: tuple[Signal, ...]


def signal(keys: QueueKeys, job_id: str, name: str, data: Any, now_ms: int) -> Operation[bool]:
    """Give a suspended job a signal and make it ready; False when it is not suspended (or not there).

    Args:
        keys: The job's queue.
        job_id: The job.
        name: What kind of signal it is.
        data: Its payload; None for none.
        now_ms: Epoch milliseconds.

    Raises:
        UsageError: The name is no text, or empty.
        PayloadError: The data is not JSON, or larger than 1 MiB.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"A signal's name says what happened, and {name!r} is none; pass a word such as 'approved'.")
    call = glidemq.signal(
        job_key=keys.job(job_id),
        stream_key=keys.stream,
        events_key=keys.events,
        suspended_key=keys.suspended,
        signals_key=keys.signals(job_id),
        job_id=job_id,
        signal_name=name,
        signal_data="" if data is None else codec.encode(data, f"The data of signal {name!r}"),
        now_ms=now_ms,
    )
    return Operation(call, lambda reply: text(reply) == "ok")


_FIELDS = ("state", "suspendReason", "suspendedAt", "suspendTimeout", "signals")


def suspend_info(keys: QueueKeys, job_id: str) -> Operation[SuspendInfo | None]:
    """Why and since when a job is suspended; None when it is not."""

    def read(reply: Reply) -> SuspendInfo | None:
        state, reason, since_ms, timeout_ms, signals = map(optional_text, reply)
        if state != JobState.SUSPENDED:
            return None
        timeout = timedelta(milliseconds=integer(timeout_ms)) if timeout_ms else None
        return SuspendInfo(reason or None, when(since_ms), timeout, read_signals(signals))

    return Operation(Call("HMGET", (keys.job(job_id),), _FIELDS), read)
