"""The page of the calendar: what all schedules, or those of one queue, will do in the coming days."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from orchestration_queue.errors import UsageError
from orchestration_queue.http.console.cache import Recent, Registry
from orchestration_queue.http.console.views import Views
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.protocol.call import Conversation, all_good, together
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import schedule_entries
from orchestration_queue.schedules import Calendar, SchedulerEntry, plan_calendar
from orchestration_queue.schedules.calendar import CalendarDay
from orchestration_queue.schedules.planning import pick_histories
from orchestration_queue.server.clock import now_ms

__all__ = ["CalendarPage"]

_KEPT_S = 5.0
_REST = 4
_MOST_KEPT = 16
_MOST_QUEUES = 1000
_DAYS = ("1", "7", "14", "31")
_LEVELS = 5
"""Shades of the hours, by the logarithm of their runs."""
_OUTCOMES = {
    "overdue": "No worker has added its job yet.",
    "late": "Its job was added late.",
    "missed": "Skipped: it was noticed too late.",
    "overlap": "Skipped: the previous job had not ended.",
    "queued": "Postponed until the previous job had ended.",
}


@dataclass(frozen=True, slots=True)
class _Cell:
    """An hour of the local clock on one day."""

    hour: int
    runs: int | None
    """None for an hour that has passed, or that the clock skips."""
    level: int
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class _Question:
    """What the form asks for."""

    queue: str
    days: str
    zone: str


class CalendarPage:
    """The page of the calendar.

    Args:
        service: The app's service.
        views: Renders the page.
        registry: Lists the queues.
    """

    def __init__(self, service: Service, views: Views, registry: Registry) -> None:
        self._service, self._views, self._registry = service, views, registry
        self._calendars = Recent(_KEPT_S, rest=_REST, most=_MOST_KEPT)
        self.routes = (Route("GET", "/ui/schedules/calendar", Scope.READ, self._show),)

    async def aclose(self) -> None:
        """Stop background reads."""
        await self._calendars.aclose()

    async def _show(self, request: Request) -> Raw:
        """Show the calendar of the queues, in a zone."""
        get = request.query.get
        asked = _Question((get("queue") or "").strip(), get("days") or "7", (get("zone") or "UTC").strip())
        found = [name for name in await self._registry.queues() if asked.queue in ("", name)]
        names = tuple(found[:_MOST_QUEUES])
        try:
            days = int(asked.days) if asked.days in _DAYS else 0
            read = partial(self._read, names, days, asked.zone)
            zones, calendar = await self._calendars.get((names, days, asked.zone), read)
        except UsageError as error:
            return self._page(asked, 400, problem=str(error))
        most = calendar.busiest.runs if calendar.busiest else 1
        grid = [(day, _cells(day, most)) for day in calendar.days]
        return self._page(asked, calendar=calendar, zones=zones, grid=grid, left_out=len(found) - len(names))

    async def _read(self, names: Sequence[str], days: int, zone: str) -> tuple[list[str], Calendar]:
        """Return the zones of the queues' schedules, and their calendar, in two exchanges."""
        follow, keys = self._service.connection.follow, {name: self._service.keys(name) for name in names}
        found = await follow(together([_read_entries(keys[name]) for name in names]))
        entries = {(queue, name): each for queue, of in zip(names, found, strict=True) for name, each in of.items()}
        picked = pick_histories(entries)
        reads = [schedule_entries.histories(keys[queue], of_queue) for queue, of_queue in picked.items()]
        past = dict(zip(picked, await follow(together(reads)), strict=True))
        history = {(queue, name): runs for queue, of_queue in past.items() for name, runs in of_queue.items()}
        plan = partial(plan_calendar, entries, now_ms(), days=days, zone=zone, history=history)
        zones = {entry.timing.tz or "UTC" for entry in entries.values()} | {"UTC"}
        return sorted(zones), await asyncio.to_thread(plan)

    def _page(
        self,
        asked: _Question,
        status: int = 200,
        *,
        problem: str = "",
        calendar: Calendar | None = None,
        zones: Sequence[str] = (),
        grid: Sequence[tuple[CalendarDay, list[_Cell]]] = (),
        left_out: int = 0,
    ) -> Raw:
        return self._views.page(
            "calendar.html", status, title="Calendar", asked=asked, choices=_DAYS, problem=problem,
            calendar=calendar, zones=zones, grid=grid, outcomes=_OUTCOMES, brief=_brief, clock_time=_clock_time,
            left_out=left_out,
        )  # fmt: skip


def _read_entries(keys: QueueKeys) -> Conversation[dict[str, SchedulerEntry]]:
    operation = schedule_entries.entries(keys)
    (reply,) = all_good((yield [operation.call]))
    parsed = {name: SchedulerEntry.parse(text) for name, text in operation.read(reply).items()}
    return {name: entry for name, entry in parsed.items() if entry is not None}


def _cells(day: CalendarDay, most: int) -> list[_Cell]:
    runs: dict[int, int] = {}
    repeated = set()
    for each in day.hours:
        hour = each.start.hour
        if hour in runs:
            repeated.add(hour)
        runs[hour] = runs.get(hour, 0) + each.runs
    return [_Cell(hour, runs.get(hour), _level(runs.get(hour), most), hour in repeated) for hour in range(24)]


def _level(runs: int | None, most: int) -> int:
    return min(_LEVELS, math.ceil(_LEVELS * math.log(runs + 1) / math.log(most + 1))) if runs else 0


def _brief(runs: int) -> str:
    """Format a count in at most four characters."""
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if runs >= limit:
            return f"{runs / limit:.1f}".removesuffix(".0")[:3].removesuffix(".") + unit
    return str(runs)


def _clock_time(at: datetime) -> str:
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
