"""Own routes of schedulers: list with next runs, edit with a preview, run now, pause."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.errors import ScheduleError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import members, plain, whole
from orchestration_queue.http.v1.schedule_edits import (
    MEMBERS,
    edit_scheduler,
    edited_schedule,
    foreseen,
    schedule_members,
)
from orchestration_queue.schedules import SchedulerEntry
from orchestration_queue.server.clock import now_ms

__all__ = [
    "change_scheduler",
    "list_planned",
    "pause_scheduler",
    "preview_scheduler",
    "resume_scheduler",
    "run_scheduler",
    "show_scheduler",
]

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
    return Json({"next_runs": _runs(foreseen(entry, edited_schedule(entry, changes), _RUNS))})


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
