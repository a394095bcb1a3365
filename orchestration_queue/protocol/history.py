"""A job's history: failed attempts, takeovers, and user actions, but no successes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from orchestration_queue.states import FailureKind

__all__ = ["HistoryEntry", "HistoryEvent", "read_history"]


class HistoryEvent(StrEnum):
    """Types of entries in a job's history."""

    FAILED = "failed"
    """An attempt failed."""
    STALLED = "stalled"
    """The lease of an attempt expired: its worker was lost."""
    RETRIED = "retried"
    """The failed job was retried by a user."""
    CANCELLED = "cancelled"
    """The job was cancelled."""
    RELEASED = "released"
    """The running job was taken from its worker, to run again."""
    MOVED = "moved"
    """The job came from another queue, which is the reason."""
    COMPLETED = "completed"
    """An attempt of a tracked job completed."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of a job's history.

    Attributes:
        event: What happened.
        ended_at: When, by the worker's or the client's clock; None if unreadable.
        attempt: The attempt that ended, from 1; None for a user's action.
        started_at: When that attempt began.
        worker: The worker that ran it; empty if unknown.
        host: The worker's machine.
        kind: The kind of failure, a value of ``FailureKind``.
        error: The error's qualified class.
        reason: The error's message.
        traceback: The end of its traceback, at most 8 KiB.
        logs: The last lines that the job had logged by then, at most 5.
    """

    event: HistoryEvent
    ended_at: datetime | None
    attempt: int | None = None
    started_at: datetime | None = None
    worker: str = ""
    host: str = ""
    kind: str = ""
    error: str = ""
    reason: str = ""
    traceback: str = ""
    logs: tuple[str, ...] = ()

    def lines(self, *, has_traceback: bool = True) -> list[str]:
        """Return a line in this machine's time, then the last log lines and the traceback."""
        what = f"attempt {self.attempt} {self.event}" if self.attempt else str(self.event)
        where = f" on {self.worker}" if self.worker else ""
        where += f" ({self.host})" if self.host else ""
        began = f", started {_moment(self.started_at)}" if self.started_at else ""
        kind = self.error if self.error and self.kind == FailureKind.ERROR else self.kind
        why = f": [{kind}] {self.reason}" if self.kind else ""
        logs = [f"  log: {line}" for line in self.logs]
        traceback = [f"  {line}" for line in self.traceback.splitlines() if has_traceback]
        return [f"{_moment(self.ended_at)} {what}{where}{began}{why}", *logs, *traceback]


def read_history(stored: str) -> tuple[HistoryEntry, ...]:
    """Return the entries of a stored history, without damaged ones."""
    try:
        entries = json.loads(stored) if stored else []
    except (ValueError, RecursionError):
        return ()
    if not isinstance(entries, list):
        return ()
    return tuple(entry for each in entries if (entry := _read_entry(each)) is not None)


def _read_entry(stored: Any) -> HistoryEntry | None:
    if not isinstance(stored, dict) or stored.get("event") not in tuple(HistoryEvent):
        return None
    logs, attempt = stored.get("logs"), stored.get("attempt")
    texts = {name: str(stored.get(name) or "") for name in ("worker", "host", "kind", "error", "reason", "traceback")}
    return HistoryEntry(
        HistoryEvent(stored["event"]),
        _time(stored.get("ended")),
        attempt if isinstance(attempt, int) else None,
        _time(stored.get("started")),
        logs=tuple(map(str, logs)) if isinstance(logs, list) else (),
        **texts,
    )


def _moment(at: datetime | None) -> str:
    return "-" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _time(stored: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(stored / 1000, UTC) if stored else None
    except (TypeError, OverflowError, OSError, ValueError):
        return None
