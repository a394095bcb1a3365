"""The wall clock as every client of this wire counts it. One place, so that a test can travel in time."""

from __future__ import annotations

import time
from datetime import timedelta

__all__ = ["now_ms", "travel"]

_ahead_ms = 0


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000 + _ahead_ms


def travel(distance: timedelta) -> None:
    """Set this process's clock ahead of the machine's by ``distance``, for delays, schedules and leases alike.

    For tests. The server's own clock, by which keys expire, stays.
    """
    global _ahead_ms
    _ahead_ms = round(distance / timedelta(milliseconds=1))
