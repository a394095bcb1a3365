"""The wire's cron dialect, parsed strictly, and its occurrences in real time zones.

croniter finds the dates; it gets them as plain numbers, in a calendar without daylight saving. Where it would differ
from the wire (days of month together with days of week, steps beyond a field's range, clock changes), this module
decides.
"""

from __future__ import annotations

import re
import zoneinfo
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from croniter import croniter

from orchestration_queue.errors import ScheduleError
from orchestration_queue.options.base import suggestion

__all__ = [
    "HORIZON_YEARS",
    "CronPattern",
    "find_zone",
    "known_zone",
    "no_occurrences",
    "with_numbers",
    "zone_varies",
]

HORIZON_YEARS = 10
"""How many years ahead to search for an occurrence."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_ITEM = re.compile(r"(?:(?P<all>\*)|(?P<low>[0-9]{1,4})(?:-(?P<high>[0-9]{1,4}))?)(?:/(?P<step>[0-9]{1,4}))?")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    lowest: int
    highest: int

    def problem(self, text: str, why: str) -> ScheduleError:
        return ScheduleError(
            f"The cron pattern's {self.name} {text!r} {why}; "
            f"use numbers {self.lowest}-{self.highest}, `*`, ranges `a-b`, steps `*/s` or `a-b/s`, and lists of these."
        )

    def values(self, text: str) -> frozenset[int]:
        """Return the numbers that the field matches."""
        return frozenset(value for item in text.split(",") for value in self._item(text, item))

    def _item(self, text: str, item: str) -> range:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise self.problem(text, "cannot be read" if item else "has an empty list entry")
        if match["all"]:
            low, high = self.lowest, self.highest
        else:
            low = int(match["low"])
            high = int(match["high"] or low)
            if match["step"] and not match["high"]:
                raise self.problem(text, "has a step without a range")
        if not (self.lowest <= low <= self.highest and self.lowest <= high <= self.highest):
            raise self.problem(text, "is out of range")
        if low > high:
            raise ScheduleError(
                f"The cron pattern's {self.name} {text!r} has a reversed range; "
                f"write `{_range_text(low, self.highest)},{_range_text(self.lowest, high)}` to continue from the start."
            )
        step = int(match["step"] or 1)
        if step == 0:
            raise self.problem(text, "has a step of 0")
        return range(low, high + 1, step)


def _range_text(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


_SECOND = _Field("second", 0, 59)
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12),
    _Field("day of week", 0, 6),
)


@dataclass(frozen=True, slots=True)
class CronPattern:
    """A parsed cron pattern.

    Attributes:
        text: The pattern as written.
        clock: The times of day, as hours, minutes and seconds, each in order.
        days: The days of the month, as a list that every cron dialect reads the same way.
        months: The months, likewise.
        weekdays: The days of the week, 0 for Sunday. A date must be one of these days, too.
        either: Days of the month, if a date may be one of these instead.
        restricts_both_days: Whether it restricts both days of the month and days of the week.
        follows_clock: Whether its hour begins with ``*``, so that it keeps its rhythm when clocks go back.
    """

    text: str
    clock: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    days: str
    months: str
    weekdays: frozenset[int]
    either: frozenset[int] = frozenset()
    restricts_both_days: bool = False
    follows_clock: bool = False

    @classmethod
    def parse(cls, text: str, *, day_or: bool = False) -> CronPattern:
        """Parse a pattern.

        With ``day_or``, if days of month and of week are both restricted, one of them is enough.

        Raises:
            ScheduleError: It is not in the wire's dialect; the message names the field.
        """
        return _parse(text, day_or)

    def next_after(self, after_ms: int, zone: tzinfo) -> int:
        """Return the first occurrence strictly after a time, in epoch milliseconds.

        Local times skipped by a forward clock change don't occur. Those repeated by a backward one occur twice if the
        pattern follows the clock, as in cron, and else the first time only.

        Raises:
            ScheduleError: No time matches within the horizon.
        """
        try:
            after = _EPOCH + after_ms * _MILLISECOND
            here = after.astimezone(zone)
            wall = here.replace(tzinfo=None, fold=0)
            for at in self._walls_from(wall):
                instant = _instant(at, zone)
                if instant is not None and instant > after:
                    again = self._find_repeated(after, here, zone) if self.follows_clock else None
                    return (min(instant, again or instant) - _EPOCH) // _MILLISECOND
        except (OverflowError, ValueError):
            pass  # the search left the calendar
        raise no_occurrences(f"{self.text!r} matches no date in the {HORIZON_YEARS} years to come")

    def is_on(self, day: date) -> bool:
        """Return whether it occurs on a local date."""
        if day.month not in _FIELDS[3].values(self.months) or day.day not in _FIELDS[2].values(self.days):
            return False
        return day.isoweekday() % 7 in self.weekdays or day.day in self.either

    def _find_repeated(self, after: datetime, here: datetime, zone: tzinfo) -> datetime | None:
        """Return the first occurrence that a local clock shows for the second time, if it shows this hour twice."""
        length = here.replace(fold=1).astimezone(UTC) - here.replace(fold=0).astimezone(UTC)
        if not length:
            return None
        wall = here.replace(tzinfo=None, fold=0)
        for at in self._walls_from(wall - length):
            second = at.replace(tzinfo=zone, fold=1).astimezone(UTC)
            if at >= wall + length:
                return None
            if second > after and second != _instant(at, zone):
                return second
        return None

    def _walls_from(self, start: datetime) -> Iterator[datetime]:
        """Yield matching local times from ``start`` on, inclusive, in the calendar's order."""
        for day in self._dates_from(start.date()):
            for clock in self._clocks_from(start.time() if day == start.date() else time()):
                yield datetime.combine(day, clock)

    def _clocks_from(self, start: time) -> Iterator[time]:
        """Yield times of day from ``start`` on, inclusive."""
        hours, minutes, seconds = self.clock
        for hour in hours[bisect_left(hours, start.hour) :]:
            is_first = hour == start.hour
            for minute in minutes[bisect_left(minutes, start.minute) if is_first else 0 :]:
                at = bisect_left(seconds, start.second) if is_first and minute == start.minute else 0
                yield from (time(hour, minute, second) for second in seconds[at:])

    def _dates_from(self, first: date) -> Iterator[date]:
        """Yield matching dates from ``first`` on. Days of the week are checked here, because croniter misses dates."""
        # Most years have no 29 February.
        last = first.replace(year=first.year + HORIZON_YEARS, day=min(first.day, 28) if first.month == 2 else first.day)
        # croniter returns times strictly after its start.
        start = datetime.combine(first, time(), UTC) - timedelta(minutes=1)
        dates = croniter(f"0 0 {self.days} {self.months} *", start, max_years_between_matches=HORIZON_YEARS)
        while True:
            try:
                day = dates.get_next(datetime).date()
            except ValueError:
                return
            if day > last:
                return
            if day.isoweekday() % 7 in self.weekdays or day.day in self.either:
                yield day


@lru_cache(maxsize=1024)
def _parse(text: str, day_or: bool) -> CronPattern:
    fields = text.split()
    if not 0 <= len(fields) - len(_FIELDS) <= 1:
        raise ScheduleError(
            f"The cron pattern {text!r} must have 5 fields, got {len(fields)}: pass "
            "minute, hour, day of month, month and day of week; or 6, with seconds before them."
        )
    seconds = _SECOND.values(fields.pop(0)) if len(fields) > len(_FIELDS) else {0}
    minutes, hours, days, months, weekdays = (field.values(words) for field, words in zip(_FIELDS, fields, strict=True))
    clock = (tuple(sorted(hours)), tuple(sorted(minutes)), tuple(sorted(seconds)))
    both = len(days) < 31 and len(weekdays) < 7
    either = days if day_or and both else frozenset[int]()
    return CronPattern(
        text,
        clock,
        "*" if either else _field_text(days, 31),
        _field_text(months, 12),
        weekdays,
        either,
        restricts_both_days=both,
        follows_clock=fields[1].startswith("*"),
    )


_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = dict(zip("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(), range(1, 13), strict=True))  # noqa: SIM905
_WEEKDAYS = dict(zip("SUN MON TUE WED THU FRI SAT".split(), range(7), strict=True))  # noqa: SIM905
_LETTERS = re.compile(r"[A-Za-z]+")
_WEEKDAY_RANGE = re.compile(r"([0-6])-([07])(?:/1)?")


def with_numbers(pattern: str) -> str:
    """Return a pattern with the numbers that every client of the wire reads.

    Nicknames such as ``@daily`` and names of months and days become numbers, and 7 becomes 0 for Sunday.

    Raises:
        ScheduleError: A nickname or a name is unknown.
    """
    if pattern.startswith("@"):
        if (known := _NICKNAMES.get(pattern.lower())) is None:
            raise ScheduleError(
                f"The cron pattern {pattern!r} is unknown{suggestion(pattern.lower(), _NICKNAMES) or '.'} "
                f"Known are {', '.join(_NICKNAMES)}."
            )
        return known
    fields = pattern.split()
    if len(fields) in (len(_FIELDS), len(_FIELDS) + 1):
        fields[-2] = _replace_names(fields[-2], _MONTHS, "month")
        weekdays = _replace_names(fields[-1], _WEEKDAYS, "day of week").split(",")
        fields[-1] = ",".join(map(_from_sunday, weekdays))
    return " ".join(fields)


def _replace_names(field: str, numbers: Mapping[str, int], what: str) -> str:
    def number(match: re.Match[str]) -> str:
        name = match[0].upper()
        if name not in numbers:
            raise ScheduleError(
                f"The cron pattern's {what} {field!r} names {match[0]!r}, which is unknown; use {', '.join(numbers)}."
            )
        return str(numbers[name])

    return _LETTERS.sub(number, field)


def _from_sunday(item: str) -> str:
    """Return an item of the days of the week with Sunday as 0, also if it ends a range."""
    if item == "7":
        return "0"
    if item == "0-7":
        raise ScheduleError("The cron pattern's day of week '0-7' has Sunday twice; write `*` for every day.")
    if (match := _WEEKDAY_RANGE.fullmatch(item)) and match[1] != "0":
        return f"{match[1]}-6,0"
    return item


def _field_text(values: frozenset[int], all_of_them: int) -> str:
    return "*" if len(values) == all_of_them else ",".join(map(str, sorted(values)))


def _instant(wall: datetime, zone: tzinfo) -> datetime | None:
    """Return when a local clock shows this time, the first time if it does so twice; None if it never does."""
    instant = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    return instant if instant.astimezone(zone).replace(tzinfo=None) == wall else None


_VARYING_ZONE = re.compile(r"localtime|posixrules|factory|(posix|right)(/.*)?", re.IGNORECASE | re.DOTALL)
"""Files of the zone database that hold what a machine is set to, or that few machines have."""


def zone_varies(name: str) -> bool:
    """Return whether a zone's name means another time from machine to machine."""
    return _VARYING_ZONE.fullmatch(name) is not None


def find_zone(name: str | None) -> tzinfo | None:
    """Return the time zone with an IANA name, in any case; UTC without a name.

    None if this machine doesn't know it, or if it means another time from machine to machine.
    """
    return UTC if name is None else _zone(name)


def known_zone(name: str | None) -> tzinfo:
    """Return the time zone with an IANA name, in any case; UTC without a name.

    Raises:
        ScheduleError: This machine doesn't know it, or it means another time from machine to machine.
    """
    zone = find_zone(name)
    if zone is None:
        why = "it depends on the machine" if name and zone_varies(name) else "no zone of that name is known here"
        raise ScheduleError(f"Invalid timezone {name!r}: {why}; use an IANA name such as 'Europe/Berlin'.")
    return zone


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo | None:
    if zone_varies(name):
        return None
    for spelling in (name, _list_zones().get(name.casefold())):
        try:
            if spelling:
                return zoneinfo.ZoneInfo(spelling)
        except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
            continue  # missing, a directory, or a path outside of the database
    return None


@lru_cache(maxsize=1)
def _list_zones() -> dict[str, str]:
    return {name.casefold(): name for name in zoneinfo.available_timezones()}


def no_occurrences(why: str) -> ScheduleError:
    """Return the error for a schedule that never runs."""
    return ScheduleError(f"Schedule has no occurrences within the configured bounds: {why}; correct the schedule.")
