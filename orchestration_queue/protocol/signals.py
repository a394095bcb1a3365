"""Signals: what a suspended job was told, as its record keeps it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestration_queue.options import wire_number
from orchestration_queue.protocol.record import when

__all__ = ["Signal", "read_signals"]

_LATEST_MS = 253_402_300_799_000
"""The end of the year 9999, the last that a datetime can say."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing a suspended job was told.

    Attributes:
        name: What kind of signal it is.
        data: Its payload; None without one.
        received_at: When the server took it, by the sender's clock.
    """

    name: str
    data: Any
    received_at: datetime | None


def read_signals(stored: str | None) -> tuple[Signal, ...]:
    """Return a job's signals in the order they arrived; none when what is stored cannot be read."""
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
    """Return a payload: the wire keeps it as JSON in a text; what else a client stored stays as it is."""
    if not isinstance(stored, str):
        return stored
    if not stored:
        return None
    try:
        return json.loads(stored)
    except ValueError:
        return stored
