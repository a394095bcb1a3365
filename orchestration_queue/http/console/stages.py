"""What happened to a job when, as its page and lists show it."""

from __future__ import annotations

from datetime import datetime

from orchestration_queue.protocol.history import HistoryEvent
from orchestration_queue.protocol.record import JobRecord

__all__ = ["stages", "took"]


def _started_at(record: JobRecord) -> datetime | None:
    """Return when the latest attempt began; the wire overwrites that of a failed one with the time of its failure."""
    if record.fields.get("state") == "failed" and record.history:
        last = record.history[-1]
        if last.event is HistoryEvent.FAILED and last.started_at is not None:
            return last.started_at
    return record.started_at


def took(record: JobRecord) -> float | None:
    """Return the seconds that the latest attempt took; None while unfinished."""
    started, finished = _started_at(record), record.finished_at
    return None if started is None or finished is None else max(0.0, (finished - started).total_seconds())


def stages(record: JobRecord) -> list[tuple[str, datetime, float | None]]:
    """Return what happened to a job so far, with the time since the stage before."""
    ended = "completed" if record.fields.get("state") == "completed" else "failed"
    times = [("added", record.added_at), ("started", _started_at(record)), (ended, record.finished_at)]
    found: list[tuple[str, datetime, float | None]] = []
    for label, at in times:
        if at is not None:
            found.append((label, at, (at - found[-1][1]).total_seconds() if found else None))
    return found
