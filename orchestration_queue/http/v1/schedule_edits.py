"""Edits of a scheduler: what changes and what stays, and when it would run then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import ScheduleError
from orchestration_queue.options import plain_number
from orchestration_queue.schedules import (
    Cron,
    Every,
    JobTemplate,
    MissedRuns,
    RepeatAfterComplete,
    Schedule,
    SchedulerEntry,
)
from orchestration_queue.schedules.policies import MAX_MISSED
from orchestration_queue.server.clock import now_ms

__all__ = ["MEMBERS", "edit_scheduler", "edited_schedule", "foreseen", "schedule_members"]

KINDS = ("pattern", "every", "repeat_after_complete")
MEMBERS = (*KINDS, "tz", "day_or", "start", "end", "limit", "jitter", "missed", "missed_max", "overlap")
"""What of a schedule can be edited; durations are in seconds."""
_ONLY_CRON = ("tz", "day_or")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _StoredTemplate(JobTemplate):
    """The template of an entry, kept as it is."""

    stored: Mapping[str, Any]

    def members(self) -> dict[str, object]:
        """Return it."""
        return dict(self.stored)


def schedule_members(entry: SchedulerEntry) -> dict[str, Any]:
    """Return what an entry says about its schedule, by the names of :data:`MEMBERS`."""
    timing, policies = entry.timing, entry.policies
    return {
        "pattern": timing.pattern or None,
        "every": plain_number(timing.every / 1000) if timing.every else None,
        "repeat_after_complete": plain_number(timing.repeat_after_complete / 1000)
        if timing.repeat_after_complete
        else None,
        "tz": timing.tz,
        "day_or": timing.day_or if timing.pattern else None,
        "start": _instant(timing.start_date),
        "end": _instant(timing.end_date),
        "limit": entry.limit,
        "jitter": plain_number(policies.jitter_ms / 1000),
        "missed": policies.missed,
        "missed_max": policies.missed_max if policies.missed == "fire_all" else None,
        "overlap": str(policies.overlap),
    }


def _instant(at_ms: int | None) -> str | None:
    try:
        return None if at_ms is None else (_EPOCH + timedelta(milliseconds=at_ms)).isoformat()
    except OverflowError:
        return None


def edited_schedule(entry: SchedulerEntry, changes: Mapping[str, Any]) -> Schedule:
    """Return an entry's schedule with some members changed; None removes one.

    Raises:
        ScheduleError: It could not run like that.
        InvalidOptionError: A policy does not exist.
    """
    found = schedule_members(entry)
    given = [kind for kind in KINDS if changes.get(kind) is not None]
    if given:
        found |= dict.fromkeys((*KINDS, *(() if given == ["pattern"] else _ONLY_CRON)))
    if "missed" in changes and "missed_max" not in changes:
        found["missed_max"] = None
    found |= changes
    kinds = [kind for kind in KINDS if found[kind] is not None]
    if len(kinds) != 1:
        raise ScheduleError(
            "A scheduler runs by one of `pattern`, `every` and `repeat_after_complete`, "
            f"and {' and '.join(kinds) or 'none'} {'are' if kinds else 'is'} given; pass one."
        )
    return _schedule(kinds[0], found)


def _schedule(kind: str, found: Mapping[str, Any]) -> Schedule:
    bounds: dict[str, Any] = {
        "start": _parsed("start", found["start"]),
        "end": _parsed("end", found["end"]),
        "limit": found["limit"],
        "jitter": 0 if found["jitter"] is None else found["jitter"],
        "missed": _missed(found["missed"], found["missed_max"]),
        "overlap": found["overlap"] or "allow",
    }
    if kind == "pattern":
        return Cron(found["pattern"], found["tz"], day_or=found["day_or"], **bounds)
    for name in _ONLY_CRON:
        if found[name] is not None:
            raise ScheduleError(f"`{name}` applies to a `pattern`, and this scheduler has `{kind}`; drop it.")
    return (Every if kind == "every" else RepeatAfterComplete)(found[kind], **bounds)


def _missed(mode: Any, most: Any) -> MissedRuns:
    if mode not in (None, "skip", "fire_once", "fire_all"):
        raise ScheduleError(f"`missed` must be skip, fire_once or fire_all, got {str(mode)[:80]!r}.")
    is_count = isinstance(most, int) and not isinstance(most, bool) and 0 < most <= MAX_MISSED
    if (mode == "fire_all") is not is_count or (most is not None and not is_count):
        raise ScheduleError(
            f"`missed` fire_all needs `missed_max`, a whole number from 1 to {MAX_MISSED}, and nothing else has it; "
            "pass both or none."
        )
    return MissedRuns(mode=mode or "fire_once", max=most)


def _parsed(name: str, value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ScheduleError(
            f"`{name}` must be a time in ISO 8601 with a zone, got {str(value)[:80]!r}; pass '2026-12-01T00:00+01:00'."
        ) from None


def foreseen(entry: SchedulerEntry, schedule: Schedule, count: int) -> Sequence[datetime]:
    """Return when a scheduler would run next with another schedule, paused or not.

    Raises:
        ScheduleError: It never runs within its bounds.
    """
    at_ms = now_ms()
    would = SchedulerEntry.initial(schedule, _StoredTemplate(stored=entry.template), at_ms, entry)
    resumed = would.resumed(at_ms) if would.is_paused else would
    return resumed.next_runs(at_ms, count) if resumed else ()


async def edit_scheduler(queue: AsyncQueue, name: str, changes: Mapping[str, Any]) -> SchedulerEntry:
    """Change a scheduler; what it makes stays, and a paused one stays paused.

    Raises:
        SchedulerNotFoundError: It does not exist.
        ScheduleError: It could not run like that.
        SchedulerBusyError: Another process held the lock for 5 s.
    """
    entry = await queue.schedulers.get(name)
    template = _StoredTemplate(stored=entry.template)
    edited = await queue.schedulers.upsert(name, edited_schedule(entry, changes), template)
    return await queue.schedulers.pause(name) if entry.is_paused and not edited.is_paused else edited
