"""Own route of statistics: how long jobs waited and ran, and how many failed, by day and task."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import plain, text, whole
from orchestration_queue.protocol.statistics import DayStatistics, Distribution, TaskStatistics

__all__ = ["KEPT_DAYS", "parse_day", "show_statistics"]

KEPT_DAYS = 30
"""How long the server keeps a day."""


def parse_day(given: str | None) -> date | None:
    """Return a day of a query; None for today.

    Raises:
        UsageError: It is not one.
    """
    try:
        return None if given is None else date.fromisoformat(given)
    except ValueError:
        raise UsageError(f"`day` must be a date in UTC such as 2026-01-31, got {given!r:.80}.") from None


async def show_statistics(request: Request) -> Json:
    """Return how long jobs waited and ran, and how many failed, by task, on ``day`` and ``days`` - 1 days before."""
    queue = request.service.queue(request.params["name"])
    days = whole(request, "days", 1, most=KEPT_DAYS)
    last = await queue.statistics(parse_day(text(request, "day")))
    try:
        before = [last.day - timedelta(days=back) for back in range(1, days)]
    except OverflowError:
        raise UsageError(f"`days` goes back before the calendar begins; pass fewer than {days}.") from None
    found = [last, *await asyncio.gather(*(queue.statistics(day) for day in before))]
    return Json({"days": [_day(each) for each in found]})


def _day(found: DayStatistics) -> dict[str, Any]:
    tasks = {name: _task(task) for name, task in found.tasks.items()}
    return {"day": found.day.isoformat(), "all": _task(found.all), "tasks": tasks}


def _task(task: TaskStatistics) -> dict[str, Any]:
    counts = {"completed": task.completed, "failed": task.failed, "retried": task.retried}
    return counts | {"wait": _spread(task.wait), "run": _spread(task.run)}


def _spread(spread: Distribution) -> dict[str, Any]:
    named = {name: plain(getattr(spread, name)) for name in ("mean", "deviation", "p50", "p90", "p99")}
    histogram = [{"until": plain(until), "count": count} for until, count in spread.histogram]
    return {"count": spread.count, **named, "histogram": histogram}
