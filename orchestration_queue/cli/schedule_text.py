"""How schedulers are told of, to people and to programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from rich.markup import escape

from orchestration_queue.protocol.operations.schedule_entries import PastRun
from orchestration_queue.schedules import SchedulerEntry
from orchestration_queue.schedules.cron import find_zone
from orchestration_queue.server.clock import now_ms

__all__ = ["day_and_time", "described", "fields", "rhythm", "standing", "time_there", "why_none"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OVERDUE_MS = 60_000
_OUTCOMES = {"fired": "green", "missed": "red"}


def _at(at_ms: int | None, zone: tzinfo = UTC) -> datetime | None:
    """A time of the wire; None for none, and for one beyond the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone) if at_ms else None
    except OverflowError:
        return None


def day_and_time(at: datetime) -> str:
    """A time with its day of the week, as cron patterns care for that; in UTC without the offset."""
    return f"{at:%a %Y-%m-%d %H:%M:%S}" if at.tzinfo is UTC else f"{at:%a} {at.isoformat(' ', 'seconds')}"


def time_there(entry: SchedulerEntry, at_ms: int | None) -> str | None:
    """A time by the clock of the scheduler's zone."""
    at = _at(at_ms, find_zone(entry.timing.tz) or UTC)
    return None if at is None else day_and_time(at)


def rhythm(entry: SchedulerEntry) -> str:
    """When it runs, in short."""
    timing = entry.timing
    if timing.pattern:
        return f"{timing.pattern} (either day)" if timing.day_or else timing.pattern
    if timing.every:
        return f"every {_span(timing.every)}"
    return f"{_span(timing.repeat_after_complete or 0)} after each job"


def _span(span_ms: int) -> str:
    return str(timedelta(milliseconds=span_ms))


def standing(entry: SchedulerEntry) -> str:
    """What is remarkable about it at this moment."""
    if entry.is_paused:
        return "[yellow]paused[/]"
    if entry.queued:
        return "[cyan]a run queued[/]"
    if entry.waits_for_completion:
        return "[cyan]running[/]"
    return "[red]overdue[/]" if entry.next_run < now_ms() - _OVERDUE_MS else ""


def why_none(entry: SchedulerEntry) -> str:
    """Why no run of it is planned."""
    if entry.is_paused:
        return "it is paused"
    return "that is decided when its job ends" if entry.waits_for_completion else "it is over"


def described(name: str, entry: SchedulerEntry) -> dict[str, Any]:
    """A scheduler for programs; durations in seconds."""
    timing, policies = entry.timing, entry.policies
    return {
        "name": name,
        "pattern": timing.pattern,
        "every": _seconds(timing.every),
        "repeat_after_complete": _seconds(timing.repeat_after_complete),
        "tz": timing.tz,
        "day_or": timing.day_or,
        "start": _at(timing.start_date),
        "end": _at(timing.end_date),
        "limit": entry.limit,
        "made": entry.iteration_count,
        "last_run": _at(entry.last_run),
        "next_run": _at(entry.next_run),
        "is_paused": entry.is_paused,
        "is_queued": bool(entry.queued),
        "last_job": entry.last_job,
        "missed": policies.missed,
        "missed_max": policies.missed_max if policies.missed == "fire_all" else None,
        "overlap": policies.overlap,
        "jitter": policies.jitter_ms / 1000,
        "template": entry.template,
    }


def _seconds(span_ms: int | None) -> float | None:
    return None if span_ms is None else span_ms / 1000


def fields(queue: str, name: str, entry: SchedulerEntry, history: Sequence[PastRun]) -> dict[str, Any]:
    """A scheduler for people: what :func:`show_fields` takes."""
    policies, options = entry.policies, entry.job_options
    next_run, last_run = _at(entry.next_run), _at(entry.last_run)
    bound = f", the latest {policies.missed_max}" if policies.missed == "fire_all" else ""
    return {
        "scheduler": escape(f"{name} of queue {queue}"),
        "runs": escape(rhythm(entry)),
        "zone": escape(entry.timing.tz or "UTC"),
        "state": standing(entry),
        "next run": time_there(entry, entry.next_run),
        "in UTC": None if next_run is None else day_and_time(next_run),
        "last run": None if last_run is None else time_there(entry, entry.last_run),
        "jobs made": f"{entry.iteration_count} of {entry.limit}" if entry.limit else str(entry.iteration_count),
        "not before": time_there(entry, entry.timing.start_date),
        "not after": time_there(entry, entry.timing.end_date),
        "jitter": f"up to {_span(policies.jitter_ms)}" if policies.jitter_ms else None,
        "missed runs": policies.missed + bound,
        "overlap": str(policies.overlap),
        "last job": escape(entry.last_job or ""),
        "makes job": escape(entry.job_name(name)),
        "data": _json(entry.template["data"]) if "data" in entry.template else None,
        "options": _json(options) if options else None,
        "history": "\n".join(_past(entry, run) for run in history),
    }


def _json(value: object) -> str:
    return escape(json.dumps(value, ensure_ascii=False))


def _past(entry: SchedulerEntry, run: PastRun) -> str:
    color = _OUTCOMES.get(run.outcome, "yellow")
    return f"{time_there(entry, run.due_ms)}  [{color}]{escape(run.outcome)}[/]  {escape(run.job_id)}".rstrip()
