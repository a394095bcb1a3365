"""The page of the calendar: what all schedules, or those of one queue, will do in the coming days."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import UsageError
from orchestration_queue.http.console.cache import Recent
from orchestration_queue.http.console.views import Views
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.schedules import Calendar, plan_calendar
from orchestration_queue.schedules.calendar import CalendarDay
from orchestration_queue.schedules.planning import pick_histories
from orchestration_queue.server.clock import now_ms

__all__ = ["CalendarPage"]

_KEPT_S = 5.0
_REST = 4
_MOST_KEPT = 16
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
        views: Renders the page.
        queues: Returns the queues that a request concerns.
    """

    def __init__(self, views: Views, queues: Callable[[Request], Awaitable[list[AsyncQueue]]]) -> None:
        self._views, self._queues = views, queues
        self._calendars = Recent(_KEPT_S, rest=_REST, most=_MOST_KEPT)
        self.routes = (Route("GET", "/ui/schedules/calendar", Scope.READ, self._show),)

    async def aclose(self) -> None:
        """Stop background reads."""
        await self._calendars.aclose()

    async def _show(self, request: Request) -> Raw:
        """Show the calendar of the queues, in a zone."""
        get = request.query.get
        wanted = _Question(get("queue") or "", get("days") or "7", (get("zone") or "UTC").strip())
        queues = await self._queues(request)
        try:
            days = int(wanted.days) if wanted.days in _DAYS else 0
            key = (tuple(queue.name for queue in queues), days, wanted.zone)
            zones, calendar = await self._calendars.get(key, partial(_read, queues, days, wanted.zone))
        except UsageError as error:
            return self._page(wanted, 400, problem=str(error))
        most = calendar.busiest.runs if calendar.busiest else 1
        return self._page(
            wanted, calendar=calendar, zones=zones, grid=[(day, _cells(day, most)) for day in calendar.days]
        )

    def _page(
        self,
        wanted: _Question,
        status: int = 200,
        *,
        problem: str = "",
        calendar: Calendar | None = None,
        zones: Sequence[str] = (),
        grid: Sequence[tuple[CalendarDay, list[_Cell]]] = (),
    ) -> Raw:
        return self._views.page(
            "calendar.html", status, title="Calendar", wanted=wanted, choices=_DAYS, problem=problem,
            calendar=calendar, zones=zones, grid=grid, outcomes=_OUTCOMES, brief=_brief, clock_time=_clock_time,
            forward=timedelta(0),
        )  # fmt: skip


async def _read(queues: Sequence[AsyncQueue], days: int, zone: str) -> tuple[list[str], Calendar]:
    """Return the zones of the queues' schedules, and their calendar."""
    listed = await asyncio.gather(*(queue.schedulers.list() for queue in queues))
    of_queue = {queue.name: queue.schedulers for queue in queues}
    entries = {
        (queue.name, name): entry for queue, found in zip(queues, listed, strict=True) for name, entry in found.items()
    }
    picked = pick_histories(entries)
    read = await asyncio.gather(*(of_queue[queue].histories(names) for queue, names in picked.items()))
    history = {(queue, name): past for queue, found in zip(picked, read, strict=True) for name, past in found.items()}
    plan = partial(plan_calendar, entries, now_ms(), days=days, zone=zone, history=history)
    zones = {entry.timing.tz for entry in entries.values()} - {None}
    return sorted(map(str, zones | {"UTC"})), await asyncio.to_thread(plan)


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
    return 1 + min(_LEVELS - 1, int(_LEVELS * math.log(runs) / math.log(most + 1))) if runs else 0


def _brief(runs: int) -> str:
    """Format a count in at most four characters."""
    for limit, unit in ((1_000_000, "M"), (1000, "k")):
        if runs >= limit:
            return f"{runs / limit:.1f}".removesuffix(".0")[:3].removesuffix(".") + unit
    return str(runs)


def _clock_time(at: datetime) -> str:
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
