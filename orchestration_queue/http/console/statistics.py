"""The page of a queue's statistics: the last hour, the last 30 days, and one day by task."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial

from orchestration_queue.client import AsyncQueue, Distribution, TaskStatistics
from orchestration_queue.http.console.cache import Recent
from orchestration_queue.http.console.charts import Series, TimeChart, draw_bars, draw_lines
from orchestration_queue.http.console.overview import ended_until, minutes_of
from orchestration_queue.http.console.views import Views, duration, number
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.queues import KEPT_DAYS, parse_day
from orchestration_queue.protocol.call import together
from orchestration_queue.server.clock import now_ms

__all__ = ["StatisticsPage"]

_HOUR = 60
_KEPT_S = 600.0
"""How long a past day's totals are kept: they no longer change."""
_MOST_KINDS = 5
_OTHER_KINDS = "other kinds"
_QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


class StatisticsPage:
    """The page of a queue's statistics.

    Args:
        service: The app's service.
        views: Renders the page.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        self._days = Recent(_KEPT_S, most=4096)
        self.routes = (Route("GET", "/ui/queues/:name/statistics", Scope.READ, self._show),)

    async def aclose(self) -> None:
        """Stop background reads."""
        await self._days.aclose()

    async def _show(self, request: Request) -> Raw:
        """Show what a queue's jobs did in the last hour, on each of 30 days, and on one day by task."""
        queue = self._service.queue(request.params["name"])
        today = await queue.statistics()
        asked = parse_day(request.query.get("day") or None)
        days = [today.day - timedelta(days=back) for back in range(KEPT_DAYS - 1, 0, -1)]
        shown = today if asked in (None, today.day) else await queue.statistics(asked)
        before = [self._days.get((queue.name, day), partial(_read_total, queue, day)) for day in days]
        totals = [*await asyncio.gather(*before), today.all]
        days.append(today.day)
        return self._views.page(
            "statistics.html", title=f"Statistics of {queue.name}", name=queue.name, shown=shown,
            totals=list(zip(days, totals, strict=True)), bars=_bars, hour=await self._draw_hour(queue),
            **_draw_days(days, totals),
        )  # fmt: skip

    async def _draw_hour(self, queue: AsyncQueue) -> TimeChart:
        minute = now_ms() // 60_000
        ended = await self._service.connection.follow(together(ended_until(queue.keys, minute, _HOUR)))
        counts = [minutes_of(each, minute, _HOUR, 1) for each in ended]
        slots = [f"{at // 60 % 24:02}:{at % 60:02}" for at in range(minute - _HOUR + 1, minute + 1)]
        return draw_bars(_outcomes(*counts), slots, number)


async def _read_total(queue: AsyncQueue, day: date) -> TaskStatistics:
    return (await queue.statistics(day)).all


def _outcomes(completed: Sequence[int], failed: Sequence[int]) -> list[Series]:
    return [Series("completed", "done", completed), Series("failed", "bad", failed)]


def _draw_days(days: Sequence[date], totals: Sequence[TaskStatistics]) -> dict[str, TimeChart]:
    slots = [f"{day:%d %b}" for day in days]
    outcomes = _outcomes([each.completed for each in totals], [each.failed for each in totals])
    return {
        "outcomes": draw_bars(outcomes, slots, number),
        "kinds": draw_bars(_kinds(totals), slots, number),
        "waits": draw_lines(_quantiles(totals, lambda total: total.wait), slots, duration, _mark_text),
        "runs": draw_lines(_quantiles(totals, lambda total: total.run), slots, duration, _mark_text),
    }


def _kinds(totals: Sequence[TaskStatistics]) -> list[Series]:
    """Return the failures by kind, the most frequent first."""
    sums: Counter[str] = Counter()
    for total in totals:
        sums.update(total.kinds)
    named = [kind for kind, _ in sums.most_common(_MOST_KINDS)]
    counts = [[each.kinds.get(kind, 0) for each in totals] for kind in named]
    found = [
        Series(kind, f"k{place}", of_kind) for place, (kind, of_kind) in enumerate(zip(named, counts, strict=True))
    ]
    if len(sums) > len(named):
        rest = [sum(each.kinds.values()) - sum(each.kinds.get(kind, 0) for kind in named) for each in totals]
        found.append(Series(_OTHER_KINDS, "k-other", rest))
    return found


def _quantiles(totals: Sequence[TaskStatistics], of: Callable[[TaskStatistics], Distribution]) -> list[Series]:
    spreads = [of(total) for total in totals]
    return [
        Series(name, name, [spread.quantile(part).total_seconds() if spread.count else None for spread in spreads])
        for name, part in _QUANTILES
    ]


def _mark_text(seconds: float) -> str:
    """Format a mark of the scale of durations in a few characters."""
    for limit, unit, length in ((1, "ms", 0.001), (600, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / 86_400:.3g} d"


def _bars(spread: Distribution) -> list[int]:
    """Return the counts of the histogram, from the shortest duration to the longest."""
    if not spread.buckets:
        return []
    return [spread.buckets.get(bucket, 0) for bucket in range(min(spread.buckets), max(spread.buckets) + 1)]
