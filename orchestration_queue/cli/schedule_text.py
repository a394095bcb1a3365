"""Descriptions of schedulers, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from rich.text import Text

from orchestration_queue.cli.text import Cell, dump, styled
from orchestration_queue.protocol.operations.schedule_entries import PastRun
from orchestration_queue.schedules import SchedulerEntry
from orchestration_queue.schedules.cron import find_zone
from orchestration_queue.server.clock import now_ms

__all__ = ["day_and_time", "describe", "fields", "rhythm", "state_of", "time_there", "why_none"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OVERDUE_MS = 60_000
_OUTCOMES = {"fired": "green", "missed": "red"}


def _at(at_ms: int | None, zone: tzinfo = UTC) -> datetime | None:
    """Read a time of the wire; None when absent or beyond the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone) if at_ms else None
    except OverflowError:
        return None


def day_and_time(at: datetime) -> str:
    """Format a time with its day of the week, which cron patterns use; in UTC without the offset."""
    return f"{at:%a %Y-%m-%d %H:%M:%S}" if at.tzinfo is UTC else f"{at:%a} {at.isoformat(' ', 'seconds')}"


def time_there(entry: SchedulerEntry, at_ms: int | None) -> str | None:
    """Format a time in the scheduler's time zone."""
    at = _at(at_ms, find_zone(entry.timing.tz) or UTC)
    return None if at is None else day_and_time(at)


def rhythm(entry: SchedulerEntry) -> str:
    """Return when it runs, in short."""
    timing = entry.timing
    if timing.pattern:
        return f"{timing.pattern} (either day)" if timing.day_or else timing.pattern
    if timing.every:
        return f"every {_span(timing.every)}"
    return f"{_span(timing.repeat_after_complete or 0)} after each job"


def _span(span_ms: int) -> str:
    return str(timedelta(milliseconds=span_ms))


def state_of(entry: SchedulerEntry) -> Text:
    """Return its state when it is worth noting, else nothing."""
    if entry.is_paused:
        return styled("paused", "yellow")
    if entry.queued:
        return styled("a run queued", "cyan")
    if entry.waits_for_completion:
        return styled("running", "cyan")
    return styled("overdue" if entry.next_run < now_ms() - _OVERDUE_MS else "", "red")


def why_none(entry: SchedulerEntry) -> str:
    """Return why none of its runs is planned."""
    if entry.is_paused:
        return "it is paused"
    return "that is decided when its job ends" if entry.waits_for_completion else "it is over"


def describe(name: str, entry: SchedulerEntry) -> dict[str, Any]:
    """Describe a scheduler for programs; durations are in seconds."""
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


def fields(queue: str, name: str, entry: SchedulerEntry, history: Sequence[PastRun]) -> dict[str, Cell | None]:
    """Describe a scheduler for people, as :func:`show_fields` takes it."""
    policies, options = entry.policies, entry.job_options
    next_run, last_run = _at(entry.next_run), _at(entry.last_run)
    bound = f", the latest {policies.missed_max}" if policies.missed == "fire_all" else ""
    return {
        "scheduler": f"{name} of queue {queue}",
        "runs": rhythm(entry),
        "zone": entry.timing.tz or "UTC",
        "state": state_of(entry),
        "next run": time_there(entry, entry.next_run),
        "in UTC": None if next_run is None else day_and_time(next_run),
        "last run": None if last_run is None else time_there(entry, entry.last_run),
        "jobs made": f"{entry.iteration_count} of {entry.limit}" if entry.limit else str(entry.iteration_count),
        "not before": time_there(entry, entry.timing.start_date),
        "not after": time_there(entry, entry.timing.end_date),
        "jitter": f"up to {_span(policies.jitter_ms)}" if policies.jitter_ms else None,
        "missed runs": policies.missed + bound,
        "overlap": str(policies.overlap),
        "last job": entry.last_job,
        "makes job": entry.job_name(name),
        "data": dump(entry.template["data"]) if "data" in entry.template else None,
        "options": dump(options) if options else None,
        "history": Text("\n").join(_past_run(entry, run) for run in history),
    }


def _past_run(entry: SchedulerEntry, run: PastRun) -> Text:
    color = _OUTCOMES.get(run.outcome, "yellow")
    return Text.assemble(
        time_there(entry, run.due_ms) or "", "  ", styled(run.outcome, color), "  ", styled(run.job_id)
    )
