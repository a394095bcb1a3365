"""The runs of a schedule as a series to count in, so that one every second costs no more than one every hour."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from orchestration_queue.schedules.cron import CronPattern

__all__ = ["IntervalSeries", "LocalClock", "PatternSeries", "Quarters", "Shift", "occurs_in"]

QUARTER_MS = 15 * 60_000
_PER_HOUR = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Quarter(NamedTuple):
    """A quarter of an hour, as a local clock shows it.

    All zones' offsets are multiples of it, and clocks change at its multiples: within one, time is even.
    """

    start_ms: int
    day: date
    is_repeated: bool = False
    """Whether the clock shows these times for the second time."""


Quarters: TypeAlias = Mapping[tuple[int, int], Sequence[_Quarter]]
"""Quarters by the local hour and by which of its quarters they are."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A clock change.

    Attributes:
        at_ms: When clocks change, epoch ms.
        forward: By how much they go forward; negative if they go back.
        skipped: The quarters that the clock skips.
    """

    at_ms: int
    forward: timedelta
    skipped: Quarters


class LocalClock:
    """What the clock of a zone shows from one time to another.

    Args:
        zone: The zone.
        start_ms: The first time, epoch ms.
        end_ms: The last, exclusive.

    Attributes:
        shifts: When the clock changes, earliest first.
        hours: When each of its hours begins, epoch ms. The first may have begun before.
    """

    def __init__(self, zone: tzinfo, start_ms: int, end_ms: int) -> None:
        quarters: dict[tuple[int, int], list[_Quarter]] = defaultdict(list)
        self.quarters: Quarters = quarters
        self.hours: list[int] = []
        walls: list[tuple[int, datetime]] = []
        for at_ms in range(start_ms // QUARTER_MS * QUARTER_MS, end_ms, QUARTER_MS):
            at = (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone)
            quarters[at.hour, at.minute * _PER_HOUR // 60].append(_Quarter(at_ms, at.date(), at.fold == 1))
            if at.minute == 0 or not walls or at.hour != walls[-1][1].hour:
                self.hours.append(at_ms)
            walls.append((at_ms, at.replace(tzinfo=None, fold=0)))
        self.shifts: list[Shift] = []
        for (_, before), (at_ms, after) in pairwise(walls):
            expected = before + timedelta(milliseconds=QUARTER_MS)
            if expected != after:
                self.shifts.append(Shift(at_ms, after - expected, _skipped_quarters(expected, after)))


def _skipped_quarters(wall: datetime, end: datetime) -> Quarters:
    quarters: dict[tuple[int, int], list[_Quarter]] = defaultdict(list)
    while wall < end:
        quarters[wall.hour, wall.minute * _PER_HOUR // 60].append(_Quarter(0, wall.date()))
        wall += timedelta(milliseconds=QUARTER_MS)
    return quarters


class IntervalSeries:
    """Runs at a fixed distance.

    Args:
        first_ms: The first, epoch ms.
        every_ms: Milliseconds between two.
        end_ms: No run at or after this time.
    """

    def __init__(self, first_ms: int, every_ms: int, end_ms: int) -> None:
        self._first_ms, self._every_ms, self._end_ms = first_ms, every_ms, end_ms

    def before(self, times: Sequence[int]) -> list[int]:
        """Return how many runs there are before each of some times, epoch ms."""
        first_ms, every_ms, end_ms = self._first_ms, self._every_ms, self._end_ms
        return [max(0, -((first_ms - min(at_ms, end_ms)) // every_ms)) for at_ms in times]

    def at(self, place: int) -> int:
        """Return when a run is due, epoch ms; the first is 0."""
        return self._first_ms + place * self._every_ms


class PatternSeries:
    """Runs of a cron pattern: the first, and the pattern's occurrences after it.

    Args:
        pattern: The pattern.
        first_ms: The first run, epoch ms.
        end_ms: No run at or after this time.
        clock: The clock of the pattern's zone, from an hour of the first run or before up to the end or beyond.
    """

    def __init__(self, pattern: CronPattern, first_ms: int, end_ms: int, clock: LocalClock) -> None:
        blocks: list[tuple[int, Sequence[int]]] = [(first_ms, (0,))] if first_ms < end_ms else []
        for start_ms, after_ms in _occurrences(pattern, clock.quarters):
            if first_ms < start_ms and start_ms + QUARTER_MS <= end_ms:
                blocks.append((start_ms, after_ms))
            elif rest := [start_ms + each for each in after_ms if first_ms < start_ms + each < end_ms]:
                blocks.append((rest[0], [each - rest[0] for each in rest]))
        self._starts = [start_ms for start_ms, _ in blocks]
        self._after = [after_ms for _, after_ms in blocks]
        self._before = list(accumulate(map(len, self._after), initial=0))

    def before(self, times: Sequence[int]) -> list[int]:
        """Return how many runs there are before each of some times, epoch ms, at which quarters of an hour begin."""
        starts, before = self._starts, self._before
        return [before[bisect_left(starts, at_ms)] for at_ms in times]

    def at(self, place: int) -> int:
        """Return when a run is due, epoch ms; the first is 0."""
        block = bisect_right(self._before, place) - 1
        return self._starts[block] + self._after[block][place - self._before[block]]


def occurs_in(pattern: CronPattern, quarters: Quarters) -> bool:
    """Return whether a pattern names a time within any of some quarters."""
    return bool(_occurrences(pattern, quarters))


def _occurrences(pattern: CronPattern, quarters: Quarters) -> list[tuple[int, Sequence[int]]]:
    """Return the quarters in which a pattern occurs, in order, each with the milliseconds after it."""
    hours, minutes, seconds = pattern.clock
    days: dict[date, bool] = {}
    found: list[tuple[int, Sequence[int]]] = []
    for place in range(_PER_HOUR):
        first = place * 60 // _PER_HOUR
        here = [minute - first for minute in minutes if 0 <= minute - first < 60 // _PER_HOUR]
        after_ms = [(minute * 60 + second) * 1000 for minute in here for second in seconds]
        for quarter in (each for hour in hours if here for each in quarters.get((hour, place), ())):
            if quarter.day not in days:
                days[quarter.day] = pattern.is_on(quarter.day)
            if days[quarter.day] and (pattern.follows_clock or not quarter.is_repeated):
                found.append((quarter.start_ms, after_ms))
    return sorted(found)
