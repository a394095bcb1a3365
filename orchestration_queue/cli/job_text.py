"""A job in words, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from orchestration_queue.cli.common import seconds_text, time_text
from orchestration_queue.cli.text import dump
from orchestration_queue.client import Job
from orchestration_queue.errors import PayloadError
from orchestration_queue.protocol.history import HistoryEntry
from orchestration_queue.protocol.operations.steps import JobStep

__all__ = ["describe", "history_text", "read_field", "step_texts"]

_MOST_STEPS = 100


def history_text(entry: HistoryEntry, shown: str | None) -> str:
    """Return what happened, in lines, and below it the attempt's traceback, unless it is shown."""
    return "\n".join(entry.lines(has_traceback=entry.traceback != shown))


def step_texts(steps: Sequence[JobStep]) -> list[str]:
    """Return a line for each durable step, the last 100."""
    earlier = len(steps) - _MOST_STEPS
    lines = [f"{earlier:,} earlier steps"] if earlier > 0 else []
    for step in steps[-_MOST_STEPS:]:
        at, took = time_text(step.ended_at), seconds_text(step.duration.total_seconds())
        facts = f"{at}, {took}, {step.size:,} bytes, attempt {step.attempt}"
        lines.append(f"{step.number}. {step.name}: {step.outcome} ({facts})")
    return lines


def describe(job: Job) -> dict[str, Any]:
    """Return a job as JSON has it."""
    record = job.record
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state,
        "added_at": record.added_at,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "seconds": record.seconds,
        "attempts_made": record.attempts_made,
        "max_attempts": record.max_attempts,
        "stalled_count": record.stalled_count,
        "priority": record.priority,
        "failed_reason": record.failed_reason,
        "failure_kind": record.failure_kind,
        "traceback": record.traceback,
        "history": [asdict(entry) for entry in record.history],
        "tags": record.tags,
        "pools": record.pools,
        "share": record.share,
        "tracked": record.is_tracked,
        "progress": record.progress,
        "data": _readable(job, "data"),
        "result": _readable(job, "returnvalue"),
        "options": record.options,
        "parent_id": record.parent_id,
    }


def _readable(job: Job, field: str) -> Any:
    """Return a decoded payload, or the stored text when another client's serializer wrote it."""
    try:
        return job.record.data if field == "data" else job.record.result
    except PayloadError:
        return job.record.fields.get(field)


def read_field(job: Job, field: str) -> str | None:
    """Return a payload of the job as text; None without one."""
    if field not in job.record.fields:
        return None
    return dump(_readable(job, field))
