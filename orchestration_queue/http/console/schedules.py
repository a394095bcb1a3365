"""The pages of schedules: next runs in the schedule's zone and in UTC, and edits with a preview."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import UsageError
from orchestration_queue.http.console.cache import or_none
from orchestration_queue.http.console.views import Views, part
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.schedulers import edit_schedule, edit_scheduler, preview_runs, schedule_members
from orchestration_queue.protocol.record import when
from orchestration_queue.schedules import SchedulerEntry, plan_calendar
from orchestration_queue.schedules.calendar import ClockChange
from orchestration_queue.server.clock import now, now_ms

__all__ = ["SchedulePages"]

_RUNS = 10
_CHANGE_DAYS = 7
"""How long before and after a clock change a schedule's page names the run that it skips."""
_NUMBERS = ("every", "repeat_after_complete", "jitter")
_COUNTS = ("limit", "missed_max")
_MOST_DIGITS = 15


class SchedulePages:
    """The list of schedules, and the page of each.

    Args:
        service: The app's service.
        views: Renders the pages.
        queues: Returns the queues that a request concerns.
    """

    def __init__(
        self, service: Service, views: Views, queues: Callable[[Request], Awaitable[list[AsyncQueue]]]
    ) -> None:
        self._service, self._views, self._queues = service, views, queues
        one = "/ui/queues/:name/schedulers/:id"
        self.routes = (
            Route("GET", "/ui/schedules", Scope.READ, self.schedules),
            Route("GET", one, Scope.READ, self.schedule),
            Route("POST", f"{one}/preview", Scope.READ, self.preview),
            Route("POST", f"{one}/edit", Scope.ACT, self.edit),
        )

    async def schedules(self, request: Request) -> Raw:
        """List the schedulers of all queues with their next runs."""
        queues = await self._queues(request)
        listed = await asyncio.gather(*(queue.schedulers.list() for queue in queues))
        rows: list[dict[str, Any]] = []
        for queue, entries in zip(queues, listed, strict=True):
            for name, entry in entries.items():
                upcoming, history = await asyncio.gather(
                    or_none(queue.schedulers.next_runs(name, 1)), queue.schedulers.history(name)
                )
                last = when(history[0].at_ms) if history else None
                rows.append({"queue": queue.name, "name": name, "entry": entry, "next": upcoming, "last": last})
        rows.sort(key=lambda row: (str(row["next"][0]) if row["next"] else "~", row["name"]))
        return self._views.page("schedules.html", title="Schedules", rows=rows, did=request.query.get("done", ""))

    async def schedule(self, request: Request) -> Raw:
        """Show one schedule: its next ten runs, the outcomes of the last ones, and a form to edit it."""
        return await self._page(request)

    async def preview(self, request: Request) -> Raw:
        """Show when a schedule would run after an edit, or why the edit is invalid."""
        changes = _changes(request)
        queue = self._service.queue(request.params["name"])
        entry = await queue.schedulers.get(request.params["id"])
        try:
            runs = preview_runs(entry, edit_schedule(entry, changes), _RUNS)
        except UsageError as error:
            return await self._page(request, 400, changes, problem=str(error))
        return await self._page(request, 200, changes, preview=runs)

    async def edit(self, request: Request) -> Raw:
        """Change when a schedule runs."""
        changes = _changes(request)
        queue, name = self._service.queue(request.params["name"]), request.params["id"]
        try:
            await edit_scheduler(queue, name, changes)
        except UsageError as error:
            return await self._page(request, 400, changes, problem=str(error))
        return self._views.redirect(f"/ui/queues/{part(queue.name)}/schedulers/{part(name)}?done=edit-1")

    async def _page(
        self,
        request: Request,
        status: int = 200,
        changes: dict[str, Any] | None = None,
        *,
        problem: str = "",
        preview: Sequence[datetime] | None = None,
    ) -> Raw:
        queue, name = self._service.queue(request.params["name"]), request.params["id"]
        entry = await queue.schedulers.get(name)
        runs, history = await asyncio.gather(
            or_none(queue.schedulers.next_runs(name, _RUNS)), queue.schedulers.history(name)
        )
        past = [(when(run.due_ms), run.outcome, run.job_id) for run in history]
        return self._views.page(
            "schedule.html", status, title=name, name=queue.name, scheduler=name, entry=entry, runs=runs or (),
            past=past, fields=schedule_members(entry) | (changes or {}), problem=problem, preview=preview,
            zone=entry.timing.tz or "UTC", now=now(), skipped=_find_skipped(queue.name, name, entry),
            did=request.query.get("done", ""),
        )  # fmt: skip


def _find_skipped(queue: str, name: str, entry: SchedulerEntry) -> list[ClockChange]:
    """Return the clock changes within a week that skip a run."""
    try:
        calendar = plan_calendar({(queue, name): entry}, now_ms(), days=_CHANGE_DAYS, zone="UTC")
    except UsageError:  # an edit of another client left times that can't be read
        return []
    return [change for change in calendar.changes if change.skipped]


def _changes(request: Request) -> dict[str, Any]:
    """Return the changes of the form; text that is not a number is kept, so that the error names it."""
    form = request.form
    changes: dict[str, Any] = {
        name: form[name][0].strip() or None
        for name in ("pattern", "tz", "start", "end", *_NUMBERS, *_COUNTS, "missed", "overlap")
        if name in form
    }
    for name in _NUMBERS:
        changes |= {name: _number(changes[name])} if changes.get(name) else {}
    for name in _COUNTS:
        changes |= {name: int(text)} if _is_digits(text := changes.get(name) or "") else {}
    if "days" in form:
        changes["day_or"] = {"either": True, "both": False}.get(form["days"][0])
    if changes.get("jitter", 0) is None:
        changes["jitter"] = 0
    if changes.get("missed") != "fire_all":
        changes["missed_max"] = None
    return changes


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def _number(text: str) -> float | str:
    whole, _, decimals = text.partition(".")
    return float(text) if _is_digits(whole) and (not decimals or _is_digits(decimals)) else text
