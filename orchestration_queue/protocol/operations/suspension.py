"""Suspended jobs: why they are suspended, and the signals that resume them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.options import wire_number
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, optional_text, text
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import when
from orchestration_queue.states import JobState

__all__ = ["Signal", "SuspendInfo", "read_signals", "signal", "suspend_info"]

_LATEST_MS = 253_402_300_799_000
"""The end of the year 9999, the last that a datetime can represent."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that a suspended job received.

    Attributes:
        name: What kind of signal it is.
        data: Its payload; None without one.
        received_at: When the server received it, by the sender's clock.
    """

    name: str
    data: Any
    received_at: datetime | None


def read_signals(stored: str | None) -> tuple[Signal, ...]:
    """Return a job's signals in the order of their arrival; none if the stored value is invalid."""
    try:
        entries = json.loads(stored or "[]")
    except ValueError:
        return ()
    if not isinstance(entries, list):
        return ()
    return tuple(_signal(entry) for entry in entries if isinstance(entry, dict))


def _signal(entry: dict[str, Any]) -> Signal:
    received_ms = int(wire_number(entry.get("receivedAt"), _LATEST_MS))
    return Signal(str(entry.get("name", "")), _payload(entry.get("data")), when(received_ms))


def _payload(stored: object) -> Any:
    """Return a payload: the wire stores it as JSON in a string; anything else that a client stored is unchanged."""
    if not isinstance(stored, str):
        return stored
    if not stored:
        return None
    try:
        return json.loads(stored)
    except ValueError:
        return stored


@dataclass(frozen=True, slots=True)
class SuspendInfo:
    """Why and since when a job is suspended.

    Attributes:
        reason: The reason that its handler gave; None without one.
        suspended_at: Since when.
        timeout: How long it waits for a signal before it fails; None waits forever.
        signals: The signals that ended its earlier suspensions.
    """

    reason: str | None
    suspended_at: datetime | None
    timeout: timedelta | None
    signals: tuple[Signal, ...]


def signal(keys: QueueKeys, job_id: str, name: str, data: Any, now_ms: int) -> Operation[bool]:
    """Send a suspended job a signal and make it ready; read False if it is not suspended or does not exist.

    Args:
        keys: The job's queue.
        job_id: The job.
        name: What kind of signal it is.
        data: Its payload; None without one.
        now_ms: Epoch milliseconds.

    Raises:
        UsageError: The name is not text, or empty.
        PayloadError: The data is not JSON, or larger than 1 MiB.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"Signal name must be a non-empty string, got {name!r}; pass a word such as 'approved'.")
    call = glidemq.signal(
        keys,
        job_key=keys.job(job_id),
        signals_key=keys.signals(job_id),
        job_id=job_id,
        signal_name=name,
        signal_data="" if data is None else codec.encode(data, f"The data of signal {name!r}"),
        now_ms=now_ms,
    )
    return Operation(call, lambda reply: text(reply) == "ok")


_FIELDS = ("state", "suspendReason", "suspendedAt", "suspendTimeout", "signals")


def suspend_info(keys: QueueKeys, job_id: str) -> Operation[SuspendInfo | None]:
    """Read why and since when a job is suspended; None if it is not."""

    def read(reply: Reply) -> SuspendInfo | None:
        state, reason, since_ms, timeout_ms, signals = map(optional_text, reply)
        if state != JobState.SUSPENDED:
            return None
        timeout = timedelta(milliseconds=integer(timeout_ms)) if timeout_ms else None
        return SuspendInfo(reason or None, when(since_ms), timeout, read_signals(signals))

    return Operation(Call("HMGET", (keys.job(job_id),), _FIELDS), read)
