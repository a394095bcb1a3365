"""Schedules: what is refused, when they run, and how they are stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError, PayloadError, ScheduleError
from orchestration_queue.options import Backoff, Deduplication, JobOptions, Ordering, Retention
from orchestration_queue.schedules import (
    Cron,
    Every,
    JobTemplate,
    RepeatAfterComplete,
    Schedule,
    SchedulerEntry,
    Timing,
)

NOW = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
MINUTE = 60_000
SECOND = timedelta(seconds=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ms(text: str) -> int:
    return int(utc(text).timestamp() * 1000)


VARYING_ZONES = ("localtime", "LocalTime", "posixrules", "Factory", "posix/Europe/Berlin", "right/UTC", "posix")

DAY_1, DAY_2 = utc("2024-01-01"), utc("2024-01-02")

BAD_INPUT: dict[str, tuple[Callable[[], object], type[OrchestrationQueueError], str]] = {
    "four fields": (lambda: Cron("* * * *"), ScheduleError, "must have 5 fields, got 4"),
    "seven fields": (lambda: Cron("0 0 * * * * *"), ScheduleError, "must have 5 fields, got 7"),
    "a second": (lambda: Cron("60 * * * * *"), ScheduleError, "second '60' is out of range"),
    "both kinds of days": (lambda: Cron("0 0 13 * 5"), ScheduleError, "pass `day_or=True` if one of them is enough"),
    "a nickname": (lambda: Cron("@dayly"), ScheduleError, "'@dayly' is unknown; use '@daily'. Known are"),
    "at reboot": (lambda: Cron("@reboot"), ScheduleError, "'@reboot' is unknown"),
    "empty": (lambda: Cron(""), ScheduleError, "must have 5 fields, got 0"),
    "minute": (lambda: Cron("60 * * * *"), ScheduleError, "minute '60' is out of range"),
    "hour": (lambda: Cron("* 24 * * *"), ScheduleError, "hour '24' is out of range"),
    "day of month": (lambda: Cron("* * 0 * *"), ScheduleError, "day of month '0' is out of range"),
    "month": (lambda: Cron("* * * 13 *"), ScheduleError, "month '13' is out of range"),
    "eight for a day": (lambda: Cron("* * * * 8"), ScheduleError, "day of week '8' is out of range"),
    "name of a month": (lambda: Cron("* * * janu *"), ScheduleError, "month 'janu' names 'janu', which is unknown"),
    "name of a day": (lambda: Cron("* * * * MON-FRO"), ScheduleError, "names 'FRO', which is unknown"),
    "step of one number": (lambda: Cron("5/10 * * * *"), ScheduleError, "minute '5/10' has a step without a range"),
    "step of 0": (lambda: Cron("*/0 * * * *"), ScheduleError, "step of 0"),
    "reversed range": (lambda: Cron("* 9-5 * * *"), ScheduleError, "hour '9-5' has a reversed range; write `9-23,0-5`"),
    "range of days across a week's end": (lambda: Cron("* * * * FRI-MON"), ScheduleError, "write `5-6,0-1`"),
    "range of days from Saturday": (lambda: Cron("* * * * SAT-MON"), ScheduleError, "write `6,0-1`"),
    "range with two Sundays": (lambda: Cron("* * * * 1,0-7"), ScheduleError, "'0-7' has Sunday twice; write `*`"),
    "range beyond the end": (lambda: Cron("* * 20-32 * *"), ScheduleError, "out of range"),
    "empty list entry": (lambda: Cron("1,,2 * * * *"), ScheduleError, "empty list entry"),
    "question mark": (lambda: Cron("* * ? * *"), ScheduleError, "cannot be read"),
    "last day": (lambda: Cron("* * L * *"), ScheduleError, "cannot be read"),
    "nth weekday": (lambda: Cron("* * * * 1#2"), ScheduleError, "cannot be read"),
    "negative": (lambda: Cron("-1 * * * *"), ScheduleError, "cannot be read"),
    "digits of another script": (lambda: Cron("٣ * * * *"), ScheduleError, "cannot be read"),
    "pattern that is no text": (lambda: Cron(5), ScheduleError, "Cron.pattern"),  # type: ignore[arg-type]
    "unknown zone": (lambda: Cron("* * * * *", tz="Mars/Base"), ScheduleError, "Invalid timezone 'Mars/Base'"),
    "zone that is a directory": (lambda: Cron("* * * * *", tz="Europe"), ScheduleError, "Invalid timezone"),
    "zone outside the database": (lambda: Cron("* * * * *", tz="../passwd"), ScheduleError, "Invalid timezone"),
    "no zone": (lambda: Cron("* * * * *", tz=""), ScheduleError, "Invalid timezone"),
    **{
        f"zone of a machine: {zone}": (
            partial(Cron, "* * * * *", tz=zone),
            ScheduleError,
            f"Invalid timezone '{zone}': it depends on the machine",
        )
        for zone in VARYING_ZONES
    },
    "no interval": (lambda: Every(0), ScheduleError, "every must be a positive safe integer"),
    "negative interval": (lambda: Every(-SECOND), ScheduleError, "every must be a positive safe integer"),
    "interval below a millisecond": (lambda: Every(0.0001), ScheduleError, "every must be a positive safe integer"),
    "interval that is no number": (
        lambda: Every("soon"),  # type: ignore[arg-type]
        ScheduleError,
        "every must be a positive safe integer",
    ),
    "interval beyond all bounds": (lambda: Every(timedelta.max), ScheduleError, "positive safe integer"),
    "no pause": (lambda: RepeatAfterComplete(0), ScheduleError, "repeatAfterComplete must be a positive safe integer"),
    "limit of 0": (lambda: Every(1, limit=0), ScheduleError, "limit must be a positive integer"),
    "limit of True": (lambda: Every(1, limit=True), ScheduleError, "limit must be a positive integer"),
    "start after end": (
        lambda: Cron("* * * * *", start=DAY_2, end=DAY_1),
        ScheduleError,
        "startDate must be less than or equal to endDate",
    ),
    "start without a zone": (
        lambda: Every(1, start=datetime(2024, 1, 1)),  # noqa: DTZ001 - the mistake to be refused
        ScheduleError,
        "startDate must be a valid Date or timestamp",
    ),
    "end that is no date": (
        lambda: Every(1, end="tomorrow"),  # type: ignore[arg-type]
        ScheduleError,
        "endDate must be a valid Date or timestamp",
    ),
    "date that never comes": (
        lambda: SchedulerEntry.initial(Cron("0 0 30 2 *"), JobTemplate(), NOW),
        ScheduleError,
        "Schedule has no occurrences within the configured bounds: '0 0 30 2 *' matches no date",
    ),
    "date beyond the horizon": (
        lambda: SchedulerEntry.initial(Cron("0 0 29 2 1", day_or=False), JobTemplate(), ms("2024-01-01")),  # 2044
        ScheduleError,
        "Schedule has no occurrences within the configured bounds",
    ),
    "over before it begins": (
        lambda: SchedulerEntry.initial(Every(1, end=DAY_1), JobTemplate(), ms("2024-01-02")),
        ScheduleError,
        "Schedule has no occurrences within the configured bounds: the first run would be after the end",
    ),
    "data that is no JSON": (
        lambda: SchedulerEntry.initial(Every(1), JobTemplate(data=object()), NOW),
        PayloadError,
        "cannot be written as JSON",
    ),
    "half a surrogate pair": (
        lambda: SchedulerEntry.initial(Every(1), JobTemplate(data="\ud800"), NOW),
        PayloadError,
        "cannot be written as JSON",
    ),
    "data too large": (
        lambda: SchedulerEntry.initial(Every(1), JobTemplate(data="ü" * 524_288), NOW),
        PayloadError,
        "exceeds maximum size",
    ),
    "template with its own id": (
        lambda: JobTemplate(options=JobOptions(job_id="mine")),
        InvalidOptionError,
        "has job_id, which the wire drops",
    ),
    "template with a delay": (lambda: JobTemplate(options=JobOptions(delay=SECOND)), InvalidOptionError, "drop delay"),
    "template with ordering": (
        lambda: JobTemplate(options=JobOptions(ordering=Ordering(key="k"))),
        InvalidOptionError,
        "drop ordering",
    ),
    "template with deduplication": (
        lambda: JobTemplate(options=JobOptions(deduplication=Deduplication(id="d"))),
        InvalidOptionError,
        "drop deduplication",
    ),
    "template with lifo and ordering": (
        lambda: JobTemplate(options=JobOptions(lifo=True, ordering=Ordering(key="k"))),
        InvalidOptionError,
        "lifo and ordering.key cannot be used together",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    build, error, message = BAD_INPUT[case]
    with pytest.raises(error, match=message.replace("*", r"\*")) as caught:
        build()
    text = str(caught.value)
    assert text.endswith(".")
    assert not text.endswith("..")
    assert "\n" not in text


@pytest.mark.parametrize(
    "make",
    [
        lambda: Every(timedelta(milliseconds=1)),
        lambda: Every(timedelta(milliseconds=2**53 - 1)),
        lambda: Every(1, start=DAY_1, end=DAY_1),
        lambda: Every(1, limit=1),
    ],
    ids=["shortest interval", "longest interval", "start at the end", "one run"],
)
def test_values_at_the_limits_are_taken(make: Callable[[], Schedule]) -> None:
    assert make()


def test_a_schedule_has_no_run_after_its_end() -> None:
    assert Every(60, end=DAY_1).next_run(DAY_1) is None
    assert Every(60, end=DAY_1 + 60 * SECOND).next_run(DAY_1) == DAY_1 + 60 * SECOND
    assert RepeatAfterComplete(60, end=DAY_1).next_run(DAY_2) is None
    assert RepeatAfterComplete(60).next_run(DAY_1) == DAY_1 + 60 * SECOND


# --- cron ------------------------------------------------------------------------------------------------

DIALECT = [
    # pattern, after, the next runs
    ("* * * * *", "2024-01-01 00:00:30", ["2024-01-01 00:01", "2024-01-01 00:02"]),
    ("*/25 * * * *", "2024-01-01 00:00", ["2024-01-01 00:25", "2024-01-01 00:50", "2024-01-01 01:00"]),
    ("*/90 * * * *", "2024-01-01 00:00", ["2024-01-01 01:00", "2024-01-01 02:00"]),
    ("10-20/5,59 3 * * *", "2024-01-01", [f"2024-01-01 03:{minute}" for minute in (10, 15, 20, 59)]),
    ("0 0 1-31/10 * *", "2024-01-01", ["2024-01-11", "2024-01-21", "2024-01-31", "2024-02-01"]),
    ("0 0 31 * *", "2024-01-31", ["2024-03-31", "2024-05-31", "2024-07-31", "2024-08-31"]),
    ("0 0 29 2 *", "2024-03-01", ["2028-02-29", "2032-02-29"]),
    ("0 0 29 2 *", "2096-03-01", ["2104-02-29"]),
    ("59 23 31 12 *", "2024-12-31 23:59", ["2025-12-31 23:59"]),
    ("0 12 * * 0", "2024-01-01", ["2024-01-07 12:00", "2024-01-14 12:00"]),
    # Days of month and days of week must both match; croniter alone misses the two last.
    ("0 0 13 * 5", "2024-01-01", ["2024-09-13", "2024-12-13", "2025-06-13"]),
    ("0 0 1-7 * 1", "2024-01-01", ["2024-02-05", "2024-03-04"]),
    ("0 0 29 2 2", "2024-01-01", ["2028-02-29"]),
    ("0 0 29 2 0", "2024-01-01", ["2032-02-29"]),
    # The last day of the horizon is searched, too.
    ("0 0 1 1 0", "2024-01-01 00:01", ["2034-01-01"]),
    ("\t05  04 * * *", "2024-01-01", ["2024-01-01 04:05"]),
]


@pytest.mark.parametrize(("pattern", "after", "runs"), DIALECT)
def test_cron_dialect(pattern: str, after: str, runs: list[str]) -> None:
    at: datetime | None = utc(after)
    for run in runs:
        assert at is not None
        at = Cron(pattern, day_or=False).next_run(at)
        assert at == utc(run)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("@daily", "0 0 * * *"),
        ("@Weekly", "0 0 * * 0"),
        ("@yearly", "0 0 1 1 *"),
        ("30 9 * * MON-FRI", "30 9 * * 1-5"),
        ("0 0 1 jan,JUL *", "0 0 1 1,7 *"),
        ("0 0 * * sat-sun", "0 0 * * 6-6,0"),
        ("0 0 * * 5-7,2", "0 0 * * 5-6,0,2"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("*/5 * * * * mon", "*/5 * * * * 1"),
    ],
)
def test_names_are_stored_as_numbers(written: str, stored: str) -> None:
    assert Cron(written).pattern == stored


def test_seconds_are_out_of_sight_of_other_clients() -> None:
    schedule = Cron("*/20 30 2 * * *", tz="Europe/Berlin")
    runs: list[datetime | None] = [utc("2024-01-01T01:30:10")]
    while len(runs) < 5 and (last := runs[-1]):
        runs.append(schedule.next_run(last))
    assert runs[1:] == [utc(f"2024-01-{run}") for run in ("01T01:30:20", "01T01:30:40", "02T01:30:00", "02T01:30:20")]
    entry = SchedulerEntry.initial(schedule, JobTemplate(), ms("2024-01-01"))
    assert (entry.members["nextRun"], entry.members["oq"]["cron"], "pattern" in entry.members) == (
        0,
        "*/20 30 2 * * *",
        False,
    )
    assert entry.timing == schedule.timing
    both = Cron("0 0 0 13 * 5", day_or=True)
    assert SchedulerEntry.initial(both, JobTemplate(), ms("2024-01-01")).timing == both.timing
    assert both.next_run(utc("2024-01-01")) == utc("2024-01-05")
    apart = Cron("0 0 0 13 * 5", day_or=False)
    assert SchedulerEntry.initial(apart, JobTemplate(), ms("2024-01-01")).timing == apart.timing
    assert apart.next_run(utc("2024-01-01")) == utc("2024-09-13")


TRANSITIONS = [
    # zone, pattern, after (UTC), the next runs (UTC)
    # Berlin, 31 March 2024: 02:00 -> 03:00 at 01:00 UTC.
    ("Europe/Berlin", "30 2 * * *", "2024-03-30 00:00", ["2024-03-30 01:30", "2024-04-01 00:30"]),
    ("Europe/Berlin", "0 3 * * *", "2024-03-30 12:00", ["2024-03-31 01:00", "2024-04-01 01:00"]),
    ("Europe/Berlin", "0 * * * *", "2024-03-31 00:00", ["2024-03-31 01:00", "2024-03-31 02:00"]),
    # Berlin, 27 October 2024: 03:00 -> 02:00 at 01:00 UTC.
    ("Europe/Berlin", "30 2 * * *", "2024-10-26 12:00", ["2024-10-27 00:30", "2024-10-28 01:30"]),
    ("Europe/Berlin", "*/30 * * * *", "2024-10-26 23:50", ["2024-10-27 00:00", "2024-10-27 00:30", "2024-10-27 01:00"]),
    ("Europe/Berlin", "*/30 * * * *", "2024-10-27 00:30", ["2024-10-27 01:00", "2024-10-27 01:30", "2024-10-27 02:00"]),
    ("Europe/Berlin", "*/30 2 * * *", "2024-10-27 01:10", ["2024-10-28 01:00"]),
    ("europe/berlin", "0 20 * * *", "2024-10-26 22:00", ["2024-10-27 19:00", "2024-10-28 19:00"]),
    # New York, 10 March and 3 November 2024.
    ("America/New_York", "30 2 * * *", "2024-03-09 12:00", ["2024-03-11 06:30"]),
    ("America/New_York", "0 12 * * 0", "2024-03-08 12:00", ["2024-03-10 16:00", "2024-03-17 16:00"]),
    ("America/New_York", "30 1 * * *", "2024-11-02 12:00", ["2024-11-03 05:30", "2024-11-04 06:30"]),
    ("America/New_York", "30 1 * * *", "2024-11-03 06:29", ["2024-11-04 06:30"]),
    # Lord Howe moves by half an hour: 7 April 2024 02:00 -> 01:30, 6 October 2024 02:00 -> 02:30.
    ("Australia/Lord_Howe", "45 1 * * *", "2024-04-06 00:00", ["2024-04-06 14:45", "2024-04-07 15:15"]),
    ("Australia/Lord_Howe", "0 * * * *", "2024-04-06 14:30", ["2024-04-06 15:30", "2024-04-06 16:30"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2024-10-05 00:00", ["2024-10-06 15:15"]),
    ("Australia/Lord_Howe", "0 * * * *", "2024-10-05 15:00", ["2024-10-05 16:00"]),
    # São Paulo left out the midnight of 4 November 2018; Samoa left out 30 December 2011.
    ("America/Sao_Paulo", "0 0 * * *", "2018-11-03 12:00", ["2018-11-05 02:00"]),
    ("Pacific/Apia", "0 12 * * *", "2011-12-29 23:00", ["2011-12-30 22:00"]),
    ("Asia/Kolkata", "0 9 * * *", "2024-03-31 00:00", ["2024-03-31 03:30", "2024-04-01 03:30"]),
    (None, "30 2 * * *", "2024-03-31 00:00", ["2024-03-31 02:30"]),
    # Wildcard hours in New York: one hour less, and one that is shown twice.
    ("America/New_York", "0 * * * *", "2024-03-10 05:30", ["2024-03-10 06:00", "2024-03-10 07:00", "2024-03-10 08:00"]),
    ("America/New_York", "0 * * * *", "2024-11-03 04:30", ["2024-11-03 05:00", "2024-11-03 06:00", "2024-11-03 07:00"]),
    ("America/New_York", "*/20 1 * * *", "2024-11-03 05:30", ["2024-11-03 05:40", "2024-11-04 06:00"]),
    # São Paulo went back over midnight, to the day before, on 18 February 2018.
    ("America/Sao_Paulo", "30 23 * * *", "2018-02-17 12:00", ["2018-02-18 01:30", "2018-02-19 02:30"]),
    ("America/Sao_Paulo", "30 * * * *", "2018-02-18 01:00", ["2018-02-18 01:30", "2018-02-18 02:30"]),
    # Cairo leaves out the first hour of 26 April 2024, and shows the last one of 31 October twice.
    ("Africa/Cairo", "30 0 * * *", "2024-04-24 12:00", ["2024-04-24 22:30", "2024-04-26 21:30"]),
    ("Africa/Cairo", "30 23 * * *", "2024-10-31 12:00", ["2024-10-31 20:30", "2024-11-01 21:30"]),
    ("Africa/Cairo", "0 */6 * * *", "2024-04-25 21:00", ["2024-04-26 03:00", "2024-04-26 09:00"]),
    # Tehran did the same by an offset of half hours, until 2022.
    ("Asia/Tehran", "30 0 * * *", "2022-03-20 12:00", ["2022-03-20 21:00", "2022-03-22 20:00"]),
    ("Asia/Tehran", "30 23 * * *", "2022-09-21 12:00", ["2022-09-21 19:00", "2022-09-22 20:00"]),
    ("Asia/Tehran", "30 0 * * *", "2023-03-21 00:00", ["2023-03-21 21:00", "2023-03-22 21:00"]),
    # Samoa had no Friday that week, and no 30th that month.
    ("Pacific/Apia", "0 12 * * 5", "2011-12-24 00:00", ["2012-01-05 22:00"]),
    ("Pacific/Apia", "0 12 30 * *", "2011-12-24 00:00", ["2012-01-29 22:00"]),
    ("Pacific/Apia", "0 */12 * * *", "2011-12-30 00:00", ["2011-12-30 10:00", "2011-12-30 22:00"]),
    # Troll jumps by two hours; Dublin's summer time is the standard; Liberia's clocks were 44 minutes and 30 s behind.
    ("Antarctica/Troll", "30 2 * * *", "2024-03-30 12:00", ["2024-04-01 00:30"]),
    (
        "Antarctica/Troll",
        "30 1,2 * * *",
        "2024-10-26 22:00",
        ["2024-10-26 23:30", "2024-10-27 00:30", "2024-10-28 01:30"],
    ),
    ("Europe/Dublin", "30 1 * * *", "2024-10-26 12:00", ["2024-10-27 00:30", "2024-10-28 01:30"]),
    ("Africa/Monrovia", "0 0 * * *", "1971-06-01 00:00", ["1971-06-01 00:44:30", "1971-06-02 00:44:30"]),
    ("Africa/Monrovia", "30 0 * * *", "1972-01-06 12:00", ["1972-01-08 00:30"]),
]


@pytest.mark.parametrize(("tz", "pattern", "after", "runs"), TRANSITIONS)
def test_clocks_that_jump(tz: str | None, pattern: str, after: str, runs: list[str]) -> None:
    at: datetime | None = utc(after)
    for run in runs:
        assert at is not None
        at = Cron(pattern, tz=tz).next_run(at)
        assert at == utc(run)


@pytest.mark.parametrize("around", ["2024-03-31 00:30", "2024-10-27 00:30", "2011-12-30 09:30"])
def test_every_counts_time_and_not_what_clocks_show(around: str) -> None:
    timing = Every(timedelta(minutes=45), start=utc(around)).timing
    at: int | None = ms(around)
    for quarter in range(1, 9):
        assert at is not None
        at = timing.following_run(at, at)
        assert at == ms(around) + quarter * 45 * MINUTE


# What croniter, or a version of it, got wrong when it was asked for such things directly.
KNOWN_BUGS: dict[str, tuple[str | None, str, str, list[str]]] = {
    "a search that begins on a leap day": (None, "0 9 29 2 *", "2024-02-29 09:00", ["2028-02-29 09:00"]),
    "a search that begins within a leap day": (None, "15 22 29 2 *", "2024-02-29", ["2024-02-29 22:15"]),
    "a century without its leap day": (None, "0 0 29 2 *", "2099-12-31", ["2104-02-29", "2108-02-29"]),
    "a century with its leap day": (None, "0 0 29 2 *", "1999-12-31", ["2000-02-29", "2004-02-29"]),
    "after the end of 32 bits": (None, "14 3 19 1 *", "2038-01-19 03:14:07", ["2039-01-19 03:14"]),
    "the second before the end of 32 bits": (None, "15 3 * * *", "2038-01-19 03:14:06", ["2038-01-19 03:15"]),
    "beyond 2106": (None, "0 0 1 1 *", "2106-02-07 06:28:16", ["2107-01-01"]),
    "zones after the end of 32 bits": ("Europe/Berlin", "30 2 * * *", "2038-03-27 12:00", ["2038-03-29 00:30"]),
    "the last millisecond before a run": (None, "* * * * *", "2024-01-01 00:00:59.999", ["2024-01-01 00:01"]),
    "the first millisecond after a run": (None, "* * * * *", "2024-01-01 00:01:00.001", ["2024-01-01 00:02"]),
    "the last millisecond of a year": (None, "0 0 1 1 *", "2023-12-31 23:59:59.999", ["2024-01-01", "2025-01-01"]),
    "a day that most months lack": (None, "0 0 31 2,4,5 *", "2024-01-01", ["2024-05-31", "2025-05-31"]),
    "a day that one month lacks, in a list": (None, "0 0 30,31 2,3 *", "2024-02-01", ["2024-03-30", "2024-03-31"]),
    "all days spelled out are a restriction too": (None, "0 0 1-31 * 1", "2024-01-01", ["2024-01-08", "2024-01-15"]),
    "a step of one": (None, "*/1 */1 */1 */1 */1", "2024-01-01", ["2024-01-01 00:01"]),
    "a step as long as the range": (None, "0 0 1-31/31 * *", "2024-01-01", ["2024-02-01", "2024-03-01"]),
    "every other day of the week": (None, "0 0 * * */2", "2024-01-05", ["2024-01-06", "2024-01-07", "2024-01-09"]),
    "overlapping items": (None, "1,1-3,*/30 0 * * *", "2024-01-01", [f"2024-01-01 00:0{n}" for n in (1, 2, 3)]),
    "the hour after a jump": (
        "Europe/Paris",
        "0 20 * * *",
        "2022-10-30 00:00",
        ["2022-10-30 19:00", "2022-10-31 19:00"],
    ),
    "each hour after a jump": (
        "Europe/Vienna",
        "30 * * * *",
        "2017-10-28 23:40",
        ["2017-10-29 00:30", "2017-10-29 01:30", "2017-10-29 02:30"],
    ),
    "minutes before a jump": (
        "Europe/Berlin",
        "1 2 * * *",
        "2020-03-29 00:59:55",
        ["2020-03-30 00:01", "2020-03-31 00:01"],
    ),
    "a midnight that is left out": ("America/Sao_Paulo", "0 0 4 11 *", "2018-01-01", ["2019-11-04 03:00"]),
    "the week of a jump": ("Europe/Berlin", "0 12 * * 0", "2022-03-24 12:00", ["2022-03-27 10:00", "2022-04-03 10:00"]),
    "a month with another offset": ("America/New_York", "* * * 4 *", "2015-02-15 12:00", ["2015-04-01 04:00"]),
}


@pytest.mark.parametrize("bug", KNOWN_BUGS)
def test_known_bugs_do_not_reach_us(bug: str) -> None:
    tz, pattern, after, runs = KNOWN_BUGS[bug]
    at: datetime | None = utc(after)
    for run in runs:
        assert at is not None
        at = Cron(pattern, tz=tz).next_run(at)
        assert at == utc(run)


@pytest.mark.parametrize("pattern", ["0 0 31 4,6,9,11 *", "0 0 30,31 2 *", "* * 31 2 0"])
@pytest.mark.parametrize("tz", [None, "Europe/Berlin"])
def test_a_date_that_never_comes_is_looked_for_in_vain_and_not_for_ever(pattern: str, tz: str | None) -> None:
    with pytest.raises(ScheduleError, match="matches no date in the 10 years to come"):
        Cron(pattern, tz=tz, day_or=False).next_run(utc("2024-01-01"))


# --- arithmetic ------------------------------------------------------------------------------------------

FIRST_RUNS = [
    (Timing(every=1000), 4501, 5501),
    (Timing(every=1000, start_date=9000), 4501, 9000),
    (Timing(every=1000, start_date=1250), 4501, 5250),
    (Timing(every=1000, start_date=1500), 4500, 4500),
    (Timing(every=1000, end_date=5000), 4501, None),
    (Timing(every=1000, end_date=5501), 4501, 5501),
    (Timing(repeat_after_complete=700), 4501, 4501),
    (Timing(repeat_after_complete=700, start_date=9000), 4501, 9000),
    (Timing(repeat_after_complete=700, start_date=1000), 4501, 4501),
    (Timing(repeat_after_complete=700, end_date=4500), 4501, None),
    (Timing(pattern="* * * * *"), 59_999, MINUTE),
    (Timing(pattern="* * * * *"), MINUTE, MINUTE),  # now itself may be the first
    (Timing(pattern="* * * * *", start_date=3 * MINUTE), MINUTE, 3 * MINUTE),
    (Timing(pattern="* * * * *", start_date=3 * MINUTE + 1), MINUTE, 4 * MINUTE),
    (Timing(pattern="* * * * *", end_date=MINUTE), MINUTE + 1, None),
]


@pytest.mark.parametrize(("timing", "now_ms", "run_ms"), FIRST_RUNS)
def test_first_run(timing: Timing, now_ms: int, run_ms: int | None) -> None:
    assert timing.first_run(now_ms) == run_ms


FOLLOWING_RUNS = [
    (Timing(every=1000), 1000, 4501, 5000),  # missed ones are left out, the phase is kept
    (Timing(every=1000), 1000, 4000, 5000),
    (Timing(every=1000), 1000, 1000, 2000),
    (Timing(every=1000), 5000, 4501, 5000),
    (Timing(every=1000, end_date=4999), 1000, 4501, None),
    (Timing(repeat_after_complete=700), 1000, 4501, 5201),
    (Timing(repeat_after_complete=700, end_date=5200), 1000, 4501, None),
    (Timing(pattern="* * * * *"), MINUTE, 5 * MINUTE, 6 * MINUTE),
    (Timing(pattern="* * * * *", end_date=6 * MINUTE - 1), MINUTE, 5 * MINUTE, None),
]


@pytest.mark.parametrize(("timing", "planned_ms", "after_ms", "run_ms"), FOLLOWING_RUNS)
def test_following_run(timing: Timing, planned_ms: int, after_ms: int, run_ms: int | None) -> None:
    assert timing.following_run(planned_ms, after_ms) == run_ms


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        (Timing(repeat_after_complete=700), True),
        (Timing(repeat_after_complete=700, every=1000), False),
        (Timing(repeat_after_complete=700, pattern="* * * * *"), False),
        (Timing(every=1000), False),
        (Timing(), False),
    ],
)
def test_a_run_depends_on_the_last_job_only_without_times_of_its_own(timing: Timing, expected: bool) -> None:
    assert timing.repeats_after_complete is expected


@pytest.mark.parametrize(
    ("members", "timing"),
    [
        ({"every": 2**53 - 1}, Timing(every=2**53 - 1)),
        ({"every": 2**53}, Timing()),
        ({"every": 5.0}, Timing(every=5)),
        ({"every": 5.5}, Timing()),
        ({"every": True}, Timing()),
        ({"every": 0}, Timing()),
        ({"every": -1}, Timing()),
        ({"startDate": 0, "endDate": -5}, Timing(start_date=0, end_date=-5)),
        ({"startDate": "0", "endDate": None}, Timing()),
        ({"pattern": 5, "tz": 5}, Timing()),
        ({"pattern": "", "tz": ""}, Timing()),
        ({"pattern": "* * * * *", "tz": "UTC"}, Timing(pattern="* * * * *", tz="UTC")),
        ({"pattern": "* * * * *", "oq": {"cron": 5}}, Timing(pattern="* * * * *")),
        ({"pattern": "* * * * *", "oq": {"cron": ""}}, Timing(pattern="* * * * *")),
        ({"every": 9, "oq": {"cron": "0 0 13 * 5"}}, Timing(pattern="0 0 13 * 5", day_or=True)),
        ({"every": 9, "oq": {"cron": "0 0 0 13 * 5"}}, Timing(pattern="0 0 0 13 * 5")),
        ({"every": 9, "oq": {"cron": "0 0 0 13 * 5", "dayOr": True}}, Timing(pattern="0 0 0 13 * 5", day_or=True)),
    ],
)
def test_stored_times_are_read_as_far_as_they_are_valid(members: dict[str, Any], timing: Timing) -> None:
    assert Timing.read(members) == timing


# --- entries ---------------------------------------------------------------------------------------------


def test_entry_is_the_wires_json() -> None:
    options = JobOptions(attempts=3, backoff=Backoff(delay=2 * SECOND), remove_on_complete=Retention(count=9))
    entry = SchedulerEntry.initial(
        Cron("0 3 * * *", tz="Europe/Berlin", start=DAY_1, end=DAY_2, limit=5),
        JobTemplate(name="load", data={"day": "ü"}, options=options),
        NOW,
    )
    assert entry.dump() == (
        '{"pattern":"0 3 * * *","tz":"Europe/Berlin","startDate":1704067200000,"endDate":1704153600000,"limit":5,'
        '"iterationCount":0,"template":{"name":"load","data":{"day":"ü"},"opts":{"attempts":3,"removeOnComplete":9,'
        '"backoff":{"type":"exponential","delay":2000}}},"nextRun":1704074400000}'
    )
    assert SchedulerEntry.parse(entry.dump()) == entry


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (Every(1.5), f'{{"every":1500,"iterationCount":0,"template":{{}},"nextRun":{NOW + 1500}}}'),
        (
            RepeatAfterComplete(timedelta(minutes=1)),
            f'{{"repeatAfterComplete":60000,"iterationCount":0,"template":{{}},"nextRun":{NOW}}}',
        ),
    ],
)
def test_entries_of_intervals(schedule: Schedule, text: str) -> None:
    assert SchedulerEntry.initial(schedule, JobTemplate(), NOW).dump() == text


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', '{"nextRun":NaN}', "[" * 100_000])
def test_malformed_entries_are_none(text: str) -> None:
    assert SchedulerEntry.parse(text) is None


def running(**changes: Any) -> SchedulerEntry:
    members = {"every": 1000, "limit": 9, "iterationCount": 4, "lastRun": NOW - 700, "nextRun": NOW + 300, **changes}
    return SchedulerEntry({name: value for name, value in members.items() if value is not None})


def test_setting_the_same_schedule_again_goes_on() -> None:
    again = SchedulerEntry.initial(Every(1, limit=20), JobTemplate(name="new"), NOW, running())
    assert again.members == {
        "every": 1000,
        "limit": 20,
        "iterationCount": 4,
        "template": {"name": "new"},
        "lastRun": NOW - 700,
        "nextRun": NOW + 300,
    }
    assert "limit" not in SchedulerEntry.initial(Every(1), JobTemplate(), NOW, running()).members


@pytest.mark.parametrize(
    ("schedule", "previous"),
    [
        (Every(2), running()),
        (Every(1, start=DAY_1), running()),
        (Every(1, end=DAY_1), running()),
        (Every(1), running(tz="Europe/Berlin")),
        (RepeatAfterComplete(1), running()),
        (Every(1), running(nextRun=0)),
        (Every(1), running(nextRun=None)),
    ],
)
def test_setting_another_schedule_begins_anew(schedule: Schedule, previous: SchedulerEntry) -> None:
    entry = SchedulerEntry.initial(schedule, JobTemplate(), NOW, previous)
    assert entry == SchedulerEntry.initial(schedule, JobTemplate(), NOW)
    assert (entry.iteration_count, entry.last_run) == (0, None)
