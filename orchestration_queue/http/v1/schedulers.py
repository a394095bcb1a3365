"""Own routes of schedulers: list with next runs, edit with a preview, run now, pause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import ScheduleError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import members, plain, whole
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

__all__ = [
    "MEMBERS",
    "change_scheduler",
    "edit_schedule",
    "edit_scheduler",
    "list_planned",
    "pause_scheduler",
    "preview_runs",
    "preview_scheduler",
    "resume_scheduler",
    "run_scheduler",
    "schedule_members",
    "show_scheduler",
]

KINDS = ("pattern", "every", "repeat_after_complete")
MEMBERS = (*KINDS, "tz", "day_or", "start", "end", "limit", "jitter", "missed", "missed_max", "overlap")
"""The members of a schedule that can be edited; durations are in seconds."""
_ONLY_CRON = ("tz", "day_or")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _StoredTemplate(JobTemplate):
    """The template of an entry, stored without change."""

    stored: Mapping[str, Any]

    def members(self) -> dict[str, object]:
        """Return the members to store."""
        return dict(self.stored)


def schedule_members(entry: SchedulerEntry) -> dict[str, Any]:
    """Return an entry's schedule, with the names of :data:`MEMBERS`."""
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
    # Other clients may store times beyond the year 9999, where Python's end.
    except OverflowError:
        return None


def edit_schedule(entry: SchedulerEntry, changes: Mapping[str, Any]) -> Schedule:
    """Return an entry's schedule with some members changed; None removes one.

    Raises:
        ScheduleError: The schedule would be invalid.
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
            "A scheduler needs exactly one of `pattern`, `every` and `repeat_after_complete`, "
            f"got {' and '.join(kinds) or 'none'}; pass one."
        )
    return _schedule(kinds[0], found)


def _schedule(kind: str, found: Mapping[str, Any]) -> Schedule:
    bounds: dict[str, Any] = {
        "start": _parse_time("start", found["start"]),
        "end": _parse_time("end", found["end"]),
        "limit": found["limit"],
        "jitter": 0 if found["jitter"] is None else found["jitter"],
        "missed": _parse_missed(found["missed"], found["missed_max"]),
        "overlap": found["overlap"] or "allow",
    }
    if kind == "pattern":
        return Cron(found["pattern"], found["tz"], day_or=found["day_or"], **bounds)
    for name in _ONLY_CRON:
        if found[name] is not None:
            raise ScheduleError(f"`{name}` applies to a `pattern`, but this scheduler has `{kind}`; remove it.")
    return (Every if kind == "every" else RepeatAfterComplete)(found[kind], **bounds)


def _parse_missed(mode: Any, most: Any) -> MissedRuns:
    if mode not in (None, "skip", "fire_once", "fire_all"):
        raise ScheduleError(f"`missed` must be skip, fire_once or fire_all, got {str(mode)[:80]!r}.")
    is_count = isinstance(most, int) and not isinstance(most, bool) and 0 < most <= MAX_MISSED
    if (mode == "fire_all") is not is_count or (most is not None and not is_count):
        raise ScheduleError(
            f"`missed_max` must be an integer from 1 to {MAX_MISSED} with `missed` fire_all, and is not allowed "
            "otherwise; pass both or none."
        )
    return MissedRuns(mode=mode or "fire_once", max=most)


def _parse_time(name: str, value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ScheduleError(
            f"`{name}` must be a time in ISO 8601 with a zone, got {str(value)[:80]!r}; pass '2026-12-01T00:00+01:00'."
        ) from None


def preview_runs(entry: SchedulerEntry, schedule: Schedule, count: int) -> Sequence[datetime]:
    """Return when a scheduler would run next with another schedule, even if it is paused.

    Raises:
        ScheduleError: It would never run within its bounds.
    """
    at_ms = now_ms()
    would = SchedulerEntry.initial(schedule, _StoredTemplate(stored=entry.template), at_ms, entry)
    resumed = would.resumed(at_ms) if would.is_paused else would
    return resumed.next_runs(at_ms, count) if resumed else ()


async def edit_scheduler(queue: AsyncQueue, name: str, changes: Mapping[str, Any]) -> SchedulerEntry:
    """Change a scheduler's schedule; its template is kept, and a paused one stays paused.

    Raises:
        SchedulerNotFoundError: It does not exist.
        ScheduleError: The schedule would be invalid.
        SchedulerBusyError: Another process held the lock for 5 s.
    """
    entry = await queue.schedulers.get(name)
    template = _StoredTemplate(stored=entry.template)
    edited = await queue.schedulers.upsert(name, edit_schedule(entry, changes), template)
    return await queue.schedulers.pause(name) if entry.is_paused and not edited.is_paused else edited


_RUNS = 10
_MOST_RUNS = 100


def _runs(runs: Sequence[datetime]) -> list[dict[str, str]]:
    """Return runs in the scheduler's time zone, and in UTC."""
    return [{"at": run.isoformat(), "utc": run.astimezone(UTC).isoformat()} for run in runs]


def _shape(name: str, entry: SchedulerEntry, count: int) -> dict[str, Any]:
    try:
        runs = entry.next_runs(now_ms(), count)
    except ScheduleError:
        runs = []  # a zone that only the writer's machine knows
    return {
        "name": name,
        **schedule_members(entry),
        "is_paused": entry.is_paused,
        "made": entry.iteration_count,
        "last_job": entry.last_job,
        "template": entry.template,
        "next_runs": _runs(runs),
    }


async def list_planned(request: Request) -> Json:
    """List a queue's schedulers with their next runs, in the scheduler's zone and in UTC."""
    count = whole(request, "runs", _RUNS, least=0, most=_MOST_RUNS)
    entries = await request.service.queue(request.params["name"]).schedulers.list()
    return Json({"schedulers": [_shape(name, entry, count) for name, entry in entries.items()]})


async def show_scheduler(request: Request) -> Json:
    """Return a scheduler with its next runs and the outcomes of the last ones."""
    count = whole(request, "runs", _RUNS, least=0, most=_MOST_RUNS)
    schedulers, name = request.service.queue(request.params["name"]).schedulers, request.params["id"]
    entry, history = await schedulers.get(name), await schedulers.history(name)
    return Json(_shape(name, entry, count) | {"history": plain(history)})


async def change_scheduler(request: Request) -> Json:
    """Change a scheduler's times. Omitted fields are kept, null removes one, and its template is unchanged."""
    changes = members(request, *MEMBERS)
    name = request.params["id"]
    entry = await edit_scheduler(request.service.queue(request.params["name"]), name, changes)
    return Json(_shape(name, entry, _RUNS))


async def preview_scheduler(request: Request) -> Json:
    """Return when a scheduler would run after a change. Nothing is written."""
    changes = members(request, *MEMBERS)
    entry = await request.service.queue(request.params["name"]).schedulers.get(request.params["id"])
    return Json({"next_runs": _runs(preview_runs(entry, edit_schedule(entry, changes), _RUNS))})


async def run_scheduler(request: Request) -> Json:
    """Add one run now; ``job_id`` is null if the overlap policy skips or queues it."""
    schedulers = request.service.queue(request.params["name"]).schedulers
    job = await schedulers.run_now(request.params["id"])
    entry = await schedulers.find(request.params["id"]) if job is None else None
    is_queued = entry is not None and bool(entry.queued)
    return Json({"job_id": None if job is None else job.id, "is_queued": is_queued}, 200 if job is None else 201)


async def pause_scheduler(request: Request) -> Json:
    """Pause a scheduler: it adds no jobs until it is resumed."""
    name = request.params["id"]
    return Json(_shape(name, await request.service.queue(request.params["name"]).schedulers.pause(name), _RUNS))


async def resume_scheduler(request: Request) -> Json:
    """Resume a paused scheduler; runs that were due meanwhile are skipped."""
    name = request.params["id"]
    return Json(_shape(name, await request.service.queue(request.params["name"]).schedulers.resume(name), _RUNS))
