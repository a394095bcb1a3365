"""Plans the calendar of schedules from their stored entries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice, pairwise
from typing import NamedTuple, TypeAlias

from orchestration_queue.errors import InvalidOptionError, ScheduleError
from orchestration_queue.protocol.operations.schedule_entries import PastRun
from orchestration_queue.schedules.calendar import (
    Calendar,
    CalendarDay,
    CalendarHour,
    ClockChange,
    Deviation,
    PlannedRuns,
    Unplanned,
)
from orchestration_queue.schedules.counting import QUARTER_MS, IntervalSeries, LocalClock, PatternSeries, occurs_in
from orchestration_queue.schedules.cron import CronPattern, find_zone, known_zone
from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.timing import MAX_SAFE_INTEGER, Timing

__all__ = ["MOST_DAYS", "pick_histories", "plan_calendar"]

MOST_DAYS = 31
_MOST_LISTED = 100
_MOST_TIMES = 4
"""Runs of a schedule on one day that are listed one by one."""
_MOST_SKIPPED = 20
_MOST_DEVIATIONS = 200
_MOST_HISTORIES = 1000
_LATE_MS = 60_000
_DAY_MS = 86_400_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Key: TypeAlias = tuple[str, str]
"""A queue, and a scheduler of it."""


def plan_calendar(
    entries: Mapping[tuple[str, str], SchedulerEntry],
    now_ms: int,
    *,
    days: int = 7,
    zone: str = "UTC",
    history: Mapping[tuple[str, str], Sequence[PastRun]] | None = None,
) -> Calendar:
    """Return the calendar of schedules. Planned times are without jitter, as in ``next_runs``.

    Its cost depends on the number of schedules and days, but not on how often a schedule runs.

    Args:
        entries: The schedules, by queue and name.
        now_ms: Epoch milliseconds by the caller's clock.
        days: How many days after today, 1 to 31. Clock changes and deviations are listed for as many days before, too.
        zone: The IANA name of the zone of its hours and days.
        history: The outcomes of the schedules' last runs, as far as they were read.

    Raises:
        InvalidOptionError: ``days`` is out of range.
        ScheduleError: This machine does not know the zone.
    """
    if not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= MOST_DAYS:
        raise InvalidOptionError(
            f"`days` must be a whole number from 1 to {MOST_DAYS}, got {days!r}; pass how many days to show."
        )
    plan = _Plan(known_zone(zone), now_ms, days)
    for key, entry in sorted(entries.items()):
        plan.add(key, entry)
    plan.count()
    return Calendar(
        zone=str(plan.zone),
        start=_moment(now_ms, plan.zone),
        end=_moment(plan.end_ms, plan.zone),
        days=plan.list_days(),
        changes=plan.list_changes(),
        deviations=_list_deviations(entries, history or {}, now_ms, now_ms - days * _DAY_MS, plan.zone),
        unplanned=plan.unplanned,
        schedules=len(entries),
        histories=len(history or ()),
    )


def pick_histories(entries: Mapping[tuple[str, str], SchedulerEntry]) -> dict[str, list[str]]:
    """Return the schedules, by queue, whose history a calendar needs: at most 1,000, those that ran last."""
    latest = sorted(entries, key=lambda key: entries[key].last_run or 0, reverse=True)[:_MOST_HISTORIES]
    names: dict[str, list[str]] = defaultdict(list)
    for queue, name in latest:
        names[queue].append(name)
    return names


@dataclass(frozen=True, slots=True)
class _Group:
    """What schedules have in common that run at the same times."""

    timing: Timing
    first_ms: int
    left: int | None
    """How many runs their limit leaves."""


class _DayRuns(NamedTuple):
    """What each schedule of a group does on a day."""

    first_ms: int
    last_ms: int
    runs: int
    times: Sequence[int]
    keys: Sequence[_Key]


class _Plan:
    """Counts the runs of schedules, once for all that run at the same times."""

    def __init__(self, zone: tzinfo, now_ms: int, days: int) -> None:
        self.zone, self._now_ms = zone, now_ms
        now = _moment(now_ms, zone)
        midnight = datetime.combine(now.date() + timedelta(days=days + 1), time(), zone)
        self.end_ms = (midnight - _EPOCH) // timedelta(milliseconds=1)
        self._start_ms = now_ms - now.minute * 60_000
        self._since_ms = self._start_ms - days * _DAY_MS
        self._clocks: dict[str, LocalClock] = {}
        self._past_clocks: dict[str, LocalClock] = {}
        self._last_runs: dict[_Key, int] = {}
        self._edges = self._clock(zone).hours
        self._dates = [_moment(at_ms, zone).date() for at_ms in self._edges]
        self._loads = [0] * len(self._edges)
        self._days: dict[date, list[_DayRuns]] = defaultdict(list)
        self._groups: dict[_Group, list[_Key]] = defaultdict(list)
        self._skipped: dict[tuple[str, int], list[_Key]] = defaultdict(list)
        self.unplanned: list[Unplanned] = []

    def add(self, key: _Key, entry: SchedulerEntry) -> None:
        """Add a schedule."""
        reason = _reason_without_run(entry)
        try:
            first_ms = None if reason else self._first_run(entry)
        except (ScheduleError, OverflowError):
            first_ms, reason = None, "cannot be read here"
        if first_ms is not None:
            left = None if entry.limit is None else entry.limit - entry.iteration_count
            self._groups[_Group(entry.timing, first_ms, left)].append(key)
            self._last_runs[key] = entry.last_run or self._now_ms
        else:
            self.unplanned.append(Unplanned(*key, reason or "has ended"))

    def _first_run(self, entry: SchedulerEntry) -> int | None:
        """Return the first run that is not due yet; None without one."""
        timing, planned_ms = entry.timing, entry.next_run
        if planned_ms <= self._now_ms and not timing.repeats_after_complete:
            return timing.following_run(planned_ms, self._now_ms)
        return None if timing.ends_before(planned_ms) else max(planned_ms, self._now_ms)

    def count(self) -> None:
        """Count the runs of all schedules."""
        edges = [*self._edges, self.end_ms]
        for group, keys in self._groups.items():
            series = self._series(group, keys)
            before = series.before(edges)
            if group.left is not None:
                before = [min(each, group.left) for each in before]
            runs = [after - start for start, after in pairwise(before)]
            self._loads = [load + each * len(keys) for load, each in zip(self._loads, runs, strict=True)]
            of_days: dict[date, list[int]] = {}
            for day, start, after in zip(self._dates, before, before[1:], strict=False):
                if after > start:
                    of_days.setdefault(day, [start, after])[1] = after
            for day, (start, after) in of_days.items():
                times = [series.at(place) for place in range(start, after)] if after - start <= _MOST_TIMES else ()
                self._days[day].append(_DayRuns(series.at(start), series.at(after - 1), after - start, times, keys))

    def _series(self, group: _Group, keys: Sequence[_Key]) -> IntervalSeries | PatternSeries:
        timing = group.timing
        end_ms = self.end_ms if timing.end_date is None else min(self.end_ms, timing.end_date + 1)
        if not timing.pattern:
            every_ms = MAX_SAFE_INTEGER if timing.repeats_after_complete else timing.every or MAX_SAFE_INTEGER
            return IntervalSeries(group.first_ms, every_ms, end_ms)
        pattern, zone = CronPattern.parse(timing.pattern, day_or=timing.day_or), known_zone(timing.tz)
        clock = self._clock(zone)
        for shift in clock.shifts:
            if not pattern.follows_clock and occurs_in(pattern, shift.skipped):
                self._skipped[str(zone), shift.at_ms] += keys
        for shift in self._past_clocks[str(zone)].shifts:
            if not pattern.follows_clock and occurs_in(pattern, shift.skipped):
                ran_before = [key for key in keys if self._last_runs[key] < shift.at_ms]
                self._skipped[str(zone), shift.at_ms] += ran_before
        return PatternSeries(pattern, group.first_ms, end_ms, clock)

    def _clock(self, zone: tzinfo) -> LocalClock:
        name = str(zone)
        if name not in self._clocks:
            self._clocks[name] = LocalClock(zone, self._start_ms, self.end_ms)
            # Up to the first quarter of the other, so that a change between the two is in one of them.
            self._past_clocks[name] = LocalClock(zone, self._since_ms, self._start_ms // QUARTER_MS * QUARTER_MS + 1)
        return self._clocks[name]

    def list_changes(self) -> list[ClockChange]:
        """Return the clock changes, earliest first."""
        clocks = [*self._past_clocks.items(), *self._clocks.items()]
        shifts = [(shift.at_ms, name, shift.forward) for name, clock in clocks for shift in clock.shifts]
        return [
            ClockChange(name, _moment(at_ms, known_zone(name)), forward, self._skipped[name, at_ms][:_MOST_SKIPPED])
            for at_ms, name, forward in sorted(shifts)
        ]

    def list_days(self) -> list[CalendarDay]:
        """Return the days with their hours, and with what their schedules do."""
        hours: dict[date, list[CalendarHour]] = defaultdict(list)
        for day, start_ms, runs in zip(self._dates, self._edges, self._loads, strict=True):
            hours[day].append(CalendarHour(_moment(start_ms, self.zone), runs))
        return [self._day(day, of_day) for day, of_day in hours.items()]

    def _day(self, day: date, hours: Sequence[CalendarHour]) -> CalendarDay:
        found = sorted(self._days[day], key=lambda runs: (runs.first_ms, runs.keys[0]))
        each = ((key, runs) for runs in found for key in runs.keys)
        listed = [self._planned(key, runs) for key, runs in islice(each, _MOST_LISTED)]
        more = sum(len(runs.keys) for runs in found) - len(listed)
        return CalendarDay(day, sum(hour.runs for hour in hours), hours, listed, more)

    def _planned(self, key: _Key, runs: _DayRuns) -> PlannedRuns:
        first, last, *times = (_moment(at_ms, self.zone) for at_ms in (runs.first_ms, runs.last_ms, *runs.times))
        return PlannedRuns(*key, runs.runs, first, last, times)


def _reason_without_run(entry: SchedulerEntry) -> str:
    if entry.is_paused:
        return "paused"
    if entry.is_exhausted or not entry.timing.is_complete:
        return "has ended"
    if not entry.next_run:
        return "waits for its job"
    return "cannot be read here" if entry.timing.pattern and find_zone(entry.timing.tz) is None else ""


def _list_deviations(
    entries: Mapping[_Key, SchedulerEntry],
    history: Mapping[_Key, Sequence[PastRun]],
    now_ms: int,
    since_ms: int,
    zone: tzinfo,
) -> list[Deviation]:
    found: list[tuple[int, _Key, str, int | None]] = []
    for key, entry in entries.items():
        due_ms = 0 if entry.is_paused else entry.run_at(key[1])
        if due_ms and due_ms < now_ms - _LATE_MS:
            found.append((entry.next_run, key, "overdue", None))
        jitter_ms = entry.policies.jitter_ms
        for run in history.get(key, ()):
            outcome = run.outcome
            if outcome == "fired":
                outcome = "late" if run.at_ms - run.due_ms > _LATE_MS + jitter_ms else ""
            if outcome and run.at_ms >= since_ms:
                found.append((run.due_ms, key, outcome, run.at_ms))
    found.sort(key=lambda run: run[:3], reverse=True)

    return [
        Deviation(*key, _moment(due_ms, zone), outcome, None if at_ms is None else _moment(at_ms, zone))
        for due_ms, key, outcome, at_ms in found[:_MOST_DEVIATIONS]
    ]


def _moment(at_ms: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone)
