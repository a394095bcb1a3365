"""Reading options that a client of any language stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from orchestration_queue.options.base import LONGEST, milliseconds
from orchestration_queue.options.job import Backoff, Retention

__all__ = ["backoff_from_wire", "retention_from_wire", "wire_number"]


def wire_number(stored: object, most: float = 2**53) -> float:
    """A number that a client of any language stored, at most ``most``; 0 for what is none, or negative."""
    if isinstance(stored, bool) or not isinstance(stored, (int, float)) or not stored > 0:
        return 0
    return min(stored, most)


def backoff_from_wire(options: Mapping[str, Any]) -> Backoff | None:
    """The backoff that a job of any language carries in its stored options; None when it has none."""
    stored = options.get("backoff")
    if not isinstance(stored, Mapping):
        return None
    return Backoff(
        type=str(stored.get("type", "fixed")),
        delay=timedelta(milliseconds=wire_number(stored.get("delay"), milliseconds(LONGEST))),
        jitter=wire_number(stored.get("jitter"), 1),
    )


def retention_from_wire(option: object) -> Retention | None:
    """A stored ``removeOnComplete`` or ``removeOnFail`` of any language as a :class:`Retention`."""
    match option:
        case True:
            return Retention(count=0)
        case int(kept) if kept > 0:
            return Retention(count=kept)
        case dict():
            age_s, most = wire_number(option.get("age"), LONGEST.total_seconds()), wire_number(option.get("count"))
            return Retention(count=int(most) or None, age=timedelta(seconds=age_s) if age_s else None)
        case _:
            return None
