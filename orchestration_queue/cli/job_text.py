"""A job in words, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from orchestration_queue.cli.common import seconds_text, time_text
from orchestration_queue.cli.text import dump
from orchestration_queue.client import Job
from orchestration_queue.protocol.history import HistoryEntry
from orchestration_queue.protocol.operations.steps import JobStep

__all__ = ["describe", "describe_step", "history_text", "read_field", "step_texts"]

_MOST_STEPS = 100


def history_text(entry: HistoryEntry, shown: str | None) -> str:
    """Return what happened, in lines, and below it the attempt's traceback, unless it is shown."""
    return "\n".join(entry.lines(has_traceback=entry.traceback != shown))


def step_texts(steps: Sequence[JobStep]) -> list[str]:
    """Return a line for each durable step, the last 100."""
    earlier = len(steps) - _MOST_STEPS
    lines = [f"{earlier:,} earlier steps"] if earlier > 0 else []
    for step in steps[-_MOST_STEPS:]:
        took = f"{seconds_text(step.duration.total_seconds())} s, {step.size:,} bytes, "
        at = f"since {time_text(step.ended_at)}, " if step.is_pause else f"{time_text(step.ended_at)}, {took}"
        lines.append(f"{step.number}. {step.name}: {step.outcome} ({at}attempt {step.attempt})")
    return lines


def describe(job: Job) -> dict[str, Any]:
    """Return a job as JSON has it."""
    shown = job.record.describe()
    return shown | {"history": [asdict(entry) for entry in job.record.history]}


def describe_step(step: JobStep) -> dict[str, Any]:
    """Return a durable step as JSON has it, with its duration in seconds, as over HTTP."""
    return asdict(step) | {"duration": step.duration.total_seconds()}


def read_field(job: Job, field: str) -> str | None:
    """Return a payload of the job as text; None without one."""
    if field not in job.record.fields:
        return None
    return dump(job.record.readable("data" if field == "data" else "result"))
