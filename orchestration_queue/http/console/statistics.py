"""The page of a queue's statistics: the last hour, the last 30 days, and one day by task."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from functools import partial

from orchestration_queue.client import AsyncQueue, Distribution, TaskStatistics
from orchestration_queue.errors import UsageError
from orchestration_queue.http.console.cache import Recent
from orchestration_queue.http.console.charts import Series, TimeChart, draw_bars, draw_lines
from orchestration_queue.http.console.overview import ended_until, minutes_of
from orchestration_queue.http.console.views import Views, duration, number
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.queues import KEPT_DAYS, parse_day
from orchestration_queue.protocol.call import together
from orchestration_queue.server.clock import now, now_ms

__all__ = ["StatisticsPage"]

_HOUR, _DAY, _QUARTER = 60, 1440, 15
"""Minutes of charts, and of a bar of the day's."""
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
        """Show what a queue's jobs did in the last hour and day, on each of 30 days, and on one day by task."""
        queue = self._service.queue(request.params["name"])
        compared = _Compared.read(request.query.get("compare", ""))
        today = await queue.statistics()
        asked = parse_day(request.query.get("day") or None)
        days = [today.day - timedelta(days=back) for back in range(KEPT_DAYS - 1, 0, -1)]
        shown = today if asked in (None, today.day) else await queue.statistics(asked)
        before = [self._days.get((queue.name, day), partial(_read_total, queue, day)) for day in days]
        totals = [*await asyncio.gather(*before), today.all]
        days.append(today.day)
        earlier = await queue.statistics(_days_before(shown.day, compared.of_day)) if compared.of_day else None
        return self._views.page(
            "statistics.html", title=f"Statistics of {queue.name}", name=queue.name, shown=shown, earlier=earlier,
            totals=list(zip(days, totals, strict=True)), bars=_bars, compared=compared, choices=_CHOICES,
            asked_day=asked, last_hour=(now() - timedelta(hours=1), now() + timedelta(minutes=1)),
            tasks=list(dict.fromkeys([*shown.tasks, *(earlier.tasks if earlier else ())])), nothing=TaskStatistics(),
            **await self._draw_minutes(queue, compared), **_draw_days(days, totals, compared),
        )  # fmt: skip

    async def _draw_minutes(self, queue: AsyncQueue, compared: _Compared) -> dict[str, TimeChart]:
        """Draw the last hour by the minute and the last day by the quarter of an hour."""
        minute = now_ms() // 60_000
        ended = await self._service.connection.follow(together(ended_until(queue.keys, minute, _DAY)))
        last, earlier = ([minutes_of(each, end, _HOUR, 1) for each in ended] for end in (minute, minute - _HOUR))
        slots = [_clock(at) for at in range(minute - _HOUR + 1, minute + 1)]
        before = _outcomes(earlier, compared.suffix) if compared.is_by_minute else ()
        quarters = [minutes_of(each, minute, _DAY, _QUARTER) for each in ended]
        begins = [_clock(at) for at in range(minute - _DAY + 1, minute + 1, _QUARTER)]
        return {
            "hour": draw_bars(_outcomes(last), slots, number, before, span=((minute - _HOUR + 1) * 60, 60)),
            "day": draw_bars(_outcomes(quarters), begins, number, span=((minute - _DAY + 1) * 60, _QUARTER * 60)),
        }


@dataclass(frozen=True, slots=True)
class _Compared:
    """With what charts compare.

    Attributes:
        key: Its word in the query; empty for nothing.
        text: What it is.
        days: How many days earlier it is; 0 for nothing.
        most_days: Days that are shown, so that all are compared.
        of_day: How many days earlier a single day is compared.
        is_by_minute: Whether minutes of then are kept.
    """

    key: str
    text: str
    days: int
    most_days: int
    of_day: int
    is_by_minute: bool = False

    @classmethod
    def read(cls, key: str) -> _Compared:
        """Return what a query names.

        Raises:
            UsageError: It is unknown.
        """
        found = next((each for each in _CHOICES if each.key == key), None)
        if found is None:
            known = ", ".join(f"`{each.key}`" for each in _CHOICES if each.key)
            raise UsageError(f"`compare` must be one of {known}, or empty, got {key[:80]!r}.")
        return found

    @property
    def suffix(self) -> str:
        """What follows the names of series of then."""
        return f", {self.text}"


_CHOICES = (
    _Compared("", "nothing", 0, KEPT_DAYS, 0),
    _Compared("before", "the time before", KEPT_DAYS // 2, KEPT_DAYS // 2, 1, is_by_minute=True),
    _Compared("week", "a week before", 7, KEPT_DAYS - 7, 7),
)


def _days_before(day: date, count: int) -> date:
    return date.fromordinal(max(1, day.toordinal() - count))


def _clock(minute: int) -> str:
    return f"{minute // 60 % 24:02}:{minute % 60:02}"


async def _read_total(queue: AsyncQueue, day: date) -> TaskStatistics:
    return (await queue.statistics(day)).all


def _outcomes(counts: Sequence[Sequence[int]], suffix: str = "") -> list[Series]:
    completed, failed = counts
    return [Series(f"completed{suffix}", "done", completed), Series(f"failed{suffix}", "bad", failed)]


def _draw_days(days: Sequence[date], totals: Sequence[TaskStatistics], compared: _Compared) -> dict[str, TimeChart]:
    first = len(days) - compared.most_days
    slots = [f"{day:%a %d %b}" for day in days[first:]]
    last = totals[first:]
    before = totals[first - compared.days :][: len(last)] if compared.days else ()
    kinds = _most_frequent_kinds([*last, *before])
    span = (int(datetime.combine(days[first], time_of_day.min, UTC).timestamp()), 86_400)

    def bars(of: Callable[[Sequence[TaskStatistics], str], list[Series]]) -> TimeChart:
        return draw_bars(of(last, ""), slots, number, of(before, compared.suffix) if before else (), span=span)

    def lines(of: Callable[[TaskStatistics], Distribution]) -> TimeChart:
        earlier = _quantiles(before, of, compared.suffix) if before else ()
        return draw_lines(_quantiles(last, of), slots, duration, _mark_text, earlier, span=span)

    return {
        "outcomes": bars(
            lambda some, suffix: _outcomes([[each.completed for each in some], [each.failed for each in some]], suffix)
        ),
        "kinds": bars(lambda some, suffix: _kinds(some, kinds, suffix)),
        "waits": lines(lambda total: total.wait),
        "runs": lines(lambda total: total.run),
    }


def _most_frequent_kinds(totals: Sequence[TaskStatistics]) -> tuple[list[str], bool]:
    """Return the kinds of failure that get a series each, and whether there are others."""
    sums: Counter[str] = Counter()
    for total in totals:
        sums.update(total.kinds)
    named = [kind for kind, _ in sums.most_common(_MOST_KINDS)]
    return named, len(sums) > len(named)


def _kinds(totals: Sequence[TaskStatistics], kinds: tuple[Sequence[str], bool], suffix: str) -> list[Series]:
    """Return the failures by kind, the most frequent first."""
    named, has_others = kinds
    found = [
        Series(f"{kind}{suffix}", f"k{place}", [each.kinds.get(kind, 0) for each in totals])
        for place, kind in enumerate(named)
    ]
    if has_others:
        rest = [sum(each.kinds.values()) - sum(each.kinds.get(kind, 0) for kind in named) for each in totals]
        found.append(Series(f"{_OTHER_KINDS}{suffix}", "k-other", rest))
    return found


def _quantiles(
    totals: Sequence[TaskStatistics], of: Callable[[TaskStatistics], Distribution], suffix: str = ""
) -> list[Series]:
    spreads = [of(total) for total in totals]
    return [
        Series(
            f"{name}{suffix}",
            name,
            [spread.quantile(part).total_seconds() if spread.count else None for spread in spreads],
        )
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
