"""The calendar of schedules: what they will do in the coming days, and what did not happen as planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

__all__ = [
    "Calendar",
    "CalendarDay",
    "CalendarHour",
    "ClockChange",
    "Deviation",
    "PlannedRuns",
    "Unplanned",
]


@dataclass(frozen=True, slots=True)
class CalendarHour:
    """An hour of a local clock.

    Attributes:
        start: When it begins; for the first hour of a calendar that is in the past.
        runs: How many runs are planned.
    """

    start: datetime
    runs: int


@dataclass(frozen=True, slots=True)
class PlannedRuns:
    """What a schedule does on a day.

    Attributes:
        queue: Its queue.
        scheduler: Its name.
        runs: How many runs are planned.
        first: The first.
        last: The last.
        times: All of them; empty if there are more than four.
    """

    queue: str
    scheduler: str
    runs: int
    first: datetime
    last: datetime
    times: Sequence[datetime] = ()


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """A day.

    Attributes:
        day: The local date.
        runs: How many runs are planned.
        hours: Its hours: 24, without those that have passed; 23 or 25 when clocks change.
        schedules: What each schedule does, by the time of its first run: at most the first 100.
        more: How many more schedules run on this day.
    """

    day: date
    runs: int
    hours: Sequence[CalendarHour]
    schedules: Sequence[PlannedRuns]
    more: int = 0


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A clock change in the calendar's zone, or in that of a schedule.

    Attributes:
        zone: The zone.
        at: When clocks change, with the new offset.
        shift: By how much they go forward; negative if they go back.
        skipped: Schedules, as queue and name, with a time that the clock skips: they have no run. At most 20. For a
            change in the past only those that had run before it.
    """

    zone: str
    at: datetime
    shift: timedelta
    skipped: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Deviation:
    """A run that did not happen as planned.

    Attributes:
        queue: Its queue.
        scheduler: Its schedule.
        due: When it was due.
        outcome: ``overdue`` if no worker has added it yet; ``late`` if its job was added more than a minute late, and
            later than by its jitter; ``missed``, ``overlap`` or ``queued`` as in a schedule's history.
        at: When it was evaluated; None for an overdue run.
    """

    queue: str
    scheduler: str
    due: datetime
    outcome: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unplanned:
    """A schedule without a planned run.

    Attributes:
        queue: Its queue.
        scheduler: Its name.
        reason: ``paused``, ``waits for its job``, ``has ended``, or ``cannot be read here``: this machine does not know
            its time zone, or its pattern is invalid.
    """

    queue: str
    scheduler: str
    reason: str


@dataclass(frozen=True, slots=True)
class Calendar:
    """What schedules will do, and what did not happen as planned.

    Attributes:
        zone: The time zone of its hours and days.
        start: The time for which it was made.
        end: Its end, exclusive: a midnight.
        days: The days, from today.
        changes: Clock changes, earliest first, also of the days before, as many as the calendar has after today.
        deviations: Runs that did not happen as planned, latest first: at most 200.
        unplanned: Schedules without a planned run.
        schedules: How many schedules there are.
        histories: Of how many schedules the history was read, for late and missed runs.
    """

    zone: str
    start: datetime
    end: datetime
    days: Sequence[CalendarDay]
    changes: Sequence[ClockChange]
    deviations: Sequence[Deviation]
    unplanned: Sequence[Unplanned]
    schedules: int
    histories: int

    @property
    def runs(self) -> int:
        """How many runs are planned."""
        return sum(day.runs for day in self.days)

    @property
    def busiest(self) -> CalendarHour | None:
        """The hour with the most runs; None without any."""
        hours = [hour for day in self.days for hour in day.hours if hour.runs]
        return max(hours, key=lambda hour: hour.runs, default=None)
