"""Signals that a suspended job received, as stored in its record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestration_queue.options import wire_number
from orchestration_queue.protocol.record import when

__all__ = ["Signal", "read_signals"]

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
