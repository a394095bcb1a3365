"""ChasquiMQ's cron dialect, evaluated on the wall clock of a time zone."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from orchestration_queue.errors import ScheduleError
from orchestration_queue.schedules.cron import zone_varies

__all__ = ["ChasquiCron", "parse_cron", "parse_zone"]

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_MONTHS = {"JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"[3 * place : 3 * place + 3]: place + 1 for place in range(12)}
_DAYS = {"SUNMONTUEWEDTHUFRISAT"[3 * place : 3 * place + 3]: place for place in range(7)}
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_ITEM = re.compile(r"(?P<first>\*|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>\d+))?")
_YEARS = 100
"""How far ahead to search."""
_LAST = -1
"""The week of a month's last weekday of a kind."""


@dataclass(frozen=True)
class ChasquiCron:
    """A parsed pattern.

    Attributes:
        seconds: In which seconds of a minute it runs; likewise ``minutes``, ``hours``, ``months``.
        years: The years in which it runs; None for all.
        days: The days of the month.
        day_rules: Days that depend on the month: ``("L", 0)`` is the last, ``("W", 15)`` the weekday nearest the 15th.
        weekdays: The days of the week, 0 is Sunday.
        weekday_rules: Pairs of a weekday and its week of the month; -1 is the last.
        is_any_day: Whether days of the month are unrestricted; likewise ``is_any_weekday``. If both are restricted,
            either is enough.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    years: frozenset[int] | None
    days: frozenset[int]
    day_rules: frozenset[tuple[str, int]]
    weekdays: frozenset[int]
    weekday_rules: frozenset[tuple[int, int]]
    is_any_day: bool
    is_any_weekday: bool

    def next_after(self, at_ms: int, zone: tzinfo) -> int | None:
        """Return the first run after a time, in epoch ms; None if it never runs within 100 years.

        A time that a clock change skips occurs at the first moment after the gap if the pattern has one time of day,
        and not at all if it has several. A repeated hour counts once, the first time. Fractions of a second are kept,
        as the original keeps them, unless the search passed a month without a run.
        """
        whole_s, fraction = divmod(at_ms, 1000)
        after = datetime.fromtimestamp(whole_s, zone).replace(tzinfo=None)
        has_one_time = len(self.hours) == len(self.minutes) == len(self.seconds) == 1
        for wall, keeps_fraction in self._walls(after + timedelta(seconds=1)):
            instant_ms, is_skipped = _instant(wall, zone)
            if is_skipped and not has_one_time:
                continue
            found = instant_ms + (fraction if keeps_fraction else 0)
            if found > at_ms:
                return found
        return None

    def _walls(self, start: datetime) -> Iterator[tuple[datetime, bool]]:
        """Yield the wall-clock times of the fires from a time on, and whether no excluded month came before."""
        keeps_fraction = True
        for year in range(start.year, min(start.year + _YEARS, 9999)):
            if self.years is not None and year not in self.years:
                keeps_fraction = False
                continue
            for month in range(start.month if year == start.year else 1, 13):
                if month not in self.months:
                    keeps_fraction = False
                    continue
                for number in range(1, calendar.monthrange(year, month)[1] + 1):
                    day = date(year, month, number)
                    if day >= start.date() and self._fires_on(day):
                        first = start.time() if day == start.date() else time()
                        yield from ((datetime.combine(day, at), keeps_fraction) for at in self._times(first))

    def _times(self, first: time) -> Iterator[time]:
        for hour in self.hours:
            if hour < first.hour:
                continue
            for minute in self.minutes:
                if (hour, minute) < (first.hour, first.minute):
                    continue
                for second in self.seconds:
                    if (hour, minute, second) >= (first.hour, first.minute, first.second):
                        yield time(hour, minute, second)

    def _fires_on(self, day: date) -> bool:
        on_day = day.day in self.days or any(_is_ruled_day(day, *rule) for rule in self.day_rules)
        weekday = day.isoweekday() % 7
        on_weekday = weekday in self.weekdays or any(_is_nth(day, weekday, *rule) for rule in self.weekday_rules)
        if self.is_any_day or self.is_any_weekday:
            return (self.is_any_day or on_day) and (self.is_any_weekday or on_weekday)
        return on_day or on_weekday


@lru_cache(maxsize=1024)
def parse_cron(expression: str) -> ChasquiCron:
    """Parse a pattern of 5 fields, 6 with seconds first, 7 with years last, or a nickname such as ``@daily``.

    Raises:
        ScheduleError: It is not in the dialect.
    """
    try:
        return _parse(expression)
    except (ValueError, AttributeError) as error:
        raise ScheduleError(
            f"The cron pattern {expression!r} cannot be read ({error}); write five fields like '30 2 * * MON-FRI'."
        ) from None


@lru_cache(maxsize=256)
def parse_zone(name: str | None) -> tzinfo:
    """Parse a time zone: an IANA name, ``UTC``, ``Z`` or an offset such as ``+05:30``.

    Raises:
        ScheduleError: There is no such zone, or it means another time from machine to machine.
    """
    if not name or name.upper() in ("UTC", "Z"):
        return UTC
    if found := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset < timedelta(days=1):
            return timezone(-offset if found[1] == "-" else offset)
    if zone_varies(name):
        raise ScheduleError(
            f"Time zone {name!r} depends on the machine; "
            "pass an IANA name like 'Europe/Lisbon' or an offset like '+01:00'."
        )
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ScheduleError(
            f"Time zone {name!r} is unknown; pass an IANA name like 'Europe/Lisbon' or an offset like '+01:00'."
        ) from None


def _parse(expression: str) -> ChasquiCron:
    fields = _NICKNAMES.get(expression.strip().lower(), expression).upper().split()
    if not 5 <= len(fields) <= 7:
        raise ValueError(f"it has {len(fields)} fields")
    if len(fields) == 5:
        fields.insert(0, "0")
    year = fields.pop() if len(fields) == 7 else "*"
    second, minute, hour, day, month, weekday = fields
    days, day_rules = _parse_days(day)
    weekdays, weekday_rules = _parse_weekdays(weekday)
    return ChasquiCron(
        seconds=tuple(sorted(_numbers(second, 0, 59))),
        minutes=tuple(sorted(_numbers(minute, 0, 59))),
        hours=tuple(sorted(_numbers(hour, 0, 23))),
        months=frozenset(_numbers(month, 1, 12, _MONTHS)),
        years=None if year == "*" else frozenset(_numbers(year, 1, 9999)),
        days=frozenset(days),
        day_rules=frozenset(day_rules),
        weekdays=frozenset(number % 7 for number in weekdays),
        weekday_rules=frozenset(weekday_rules),
        is_any_day=day in ("*", "?"),
        is_any_weekday=weekday in ("*", "?"),
    )


def _numbers(field: str, low: int, high: int, names: dict[str, int] | None = None) -> set[int]:
    return {number for item in field.split(",") for number in _range(item, low, high, names or {})}


def _range(item: str, low: int, high: int, names: dict[str, int]) -> range:
    found = _ITEM.fullmatch(item)
    if not found:
        raise ValueError(f"{item!r} is not a number, a range or a step")
    step = int(found["step"] or 1)
    if found["first"] == "*":
        first, last = low, high
    else:
        first = _number(found["first"], names)
        last = _number(found["last"], names) if found["last"] else high if found["step"] else first
    if not low <= first <= last <= high or not step or (found["first"] == "*" and found["last"]):
        raise ValueError(f"{item!r} is not within {low}-{high}")
    return range(first, last + 1, step)


def _number(word: str, names: dict[str, int]) -> int:
    if word in names:
        return names[word]
    if not (word.isascii() and word.isdecimal()):
        raise ValueError(f"{word!r} is not a number")
    return int(word)


def _parse_days(field: str) -> tuple[set[int], set[tuple[str, int]]]:
    days: set[int] = set()
    rules: set[tuple[str, int]] = set()
    for item in (field if field != "?" else "*").split(","):
        if item == "L":
            rules.add(("L", 0))
        elif item.endswith("W"):
            (number,) = _range(item[:-1], 1, 31, {})
            rules.add(("W", number))
        else:
            days.update(_range(item, 1, 31, {}))
    return days, rules


def _parse_weekdays(field: str) -> tuple[set[int], set[tuple[int, int]]]:
    weekdays: set[int] = set()
    rules: set[tuple[int, int]] = set()
    for item in (field if field != "?" else "*").split(","):
        word, hash_sign, week = item.partition("#")
        if not hash_sign and len(item) > 1 and item.endswith("L"):
            word, hash_sign, week = item[:-1], "#", "L"
        if hash_sign:
            rules.add((_number(word, _DAYS) % 7, _LAST if week == "L" else _range(week, 1, 5, {})[0]))
        else:
            weekdays.update(_range(item, 0, 6 if item.startswith("*") else 7, _DAYS))
    return weekdays, rules


def _is_ruled_day(day: date, kind: str, number: int) -> bool:
    length = calendar.monthrange(day.year, day.month)[1]
    if kind == "L":
        return day.day == length
    if number > length:
        return False
    wanted = day.replace(day=number)
    shift = {6: -1 if number > 1 else 2, 7: 1 if number < length else -2}.get(wanted.isoweekday(), 0)
    return day.day == number + shift


def _is_nth(day: date, weekday: int, wanted: int, week: int) -> bool:
    if weekday != wanted:
        return False
    if week == _LAST:
        return day.day + 7 > calendar.monthrange(day.year, day.month)[1]
    return (day.day + 6) // 7 == week


def _instant(wall: datetime, zone: tzinfo) -> tuple[int, bool]:
    """Return when a clock in the zone first shows a time, in epoch ms, and False; or the end of its gap, and True."""
    at = wall.replace(tzinfo=zone, fold=0)
    instant = int(at.timestamp())
    if datetime.fromtimestamp(instant, zone).replace(tzinfo=None) == wall:
        return instant * 1000, False
    before, after = at.utcoffset(), wall.replace(tzinfo=zone, fold=1).utcoffset()
    if before is None or after is None:
        return instant * 1000, False
    # In a gap, `fold=0` reads the time with the offset before it. The gap ends where both offsets meet.
    low, high = instant - int((after - before).total_seconds()), instant
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high * 1000, True
