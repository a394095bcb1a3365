"""The calendar of schedules: it agrees with their evaluation, at a cost that their rhythm does not change."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError, ScheduleError
from orchestration_queue.protocol.operations.schedule_entries import PastRun
from orchestration_queue.schedules import (
    Calendar,
    Cron,
    Every,
    JobTemplate,
    RepeatAfterComplete,
    Schedule,
    SchedulerEntry,
    plan_calendar,
)

ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"),
    *("Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Chatham"),
)
CHANGES = [
    datetime(year, month, day, 12, tzinfo=UTC)
    for year, month, day in ((2026, 3, 7), (2026, 3, 28), (2026, 10, 3), (2026, 10, 24), (2026, 10, 31), (2026, 4, 4))
]
"""The days before some of these zones' clocks change."""


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def entry(schedule: Schedule, now: datetime) -> SchedulerEntry:
    return SchedulerEntry.initial(schedule, JobTemplate(), ms(now))


def plan(schedules: Mapping[str, Schedule], now: datetime, days: int = 2, zone: str = "UTC") -> Calendar:
    entries = {("q", name): entry(schedule, now) for name, schedule in schedules.items()}
    return plan_calendar(entries, ms(now), days=days, zone=zone)


FIELDS = st.tuples(
    st.sampled_from(["0", "30", "*/20", "5,59", "10-14"]),
    st.sampled_from(["*", "1", "2", "*/2", "1-3", "0,2,23"]),
    st.sampled_from(["*", "1-15", "29"]),
    st.sampled_from(["*", "*/2", "3,10"]),
)


@given(
    fields=FIELDS,
    zones=st.tuples(st.sampled_from(ZONES), st.sampled_from(ZONES)),
    change=st.sampled_from(CHANGES),
    ahead=st.integers(0, 43_200_000),
    limit=st.none() | st.integers(1, 30),
    end=st.none() | st.integers(1, 40),
)
@settings(max_examples=40, deadline=None)
def test_a_pattern_runs_in_the_calendar_when_it_is_evaluated_to_run(
    fields: tuple[str, ...], zones: tuple[str, str], change: datetime, ahead: int, limit: int | None, end: int | None
) -> None:
    now = change + timedelta(milliseconds=ahead)
    until = None if end is None else now + timedelta(hours=end)
    try:
        made = entry(Cron(f"{' '.join(fields)} *", tz=zones[0], limit=limit, end=until), now)
    except ScheduleError:  # no run before its end
        return
    assert_agreement(made, now, zones[1])


@given(
    every=st.integers(600_000, 90_000_000), zone=st.sampled_from(ZONES), change=st.sampled_from(CHANGES),
    limit=st.none() | st.integers(1, 30), ahead=st.integers(0, 43_200_000),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_an_interval_runs_in_the_calendar_when_it_is_evaluated_to_run(
    every: int, zone: str, change: datetime, limit: int | None, ahead: int
) -> None:
    now = change + timedelta(milliseconds=ahead)
    assert_agreement(entry(Every(timedelta(milliseconds=every), limit=limit), now), now, zone)


def assert_agreement(made: SchedulerEntry, now: datetime, zone: str) -> None:
    calendar = plan_calendar({("q", "s"): made}, ms(now) + 1, days=1, zone=zone)
    expected = [run.astimezone(calendar.end.tzinfo) for run in made.next_runs(ms(now) + 1, 300)]
    expected = [run for run in expected if ms(now) + 1 < ms(run) < ms(calendar.end)]
    days = Counter(run.date() for run in expected)
    assert {day.day: day.runs for day in calendar.days if day.runs} == days
    hours = Counter((run.date(), run.hour) for run in expected)
    counted: Counter[tuple[object, int]] = Counter()
    for day in calendar.days:
        for hour in day.hours:
            counted[day.day, hour.start.hour] += hour.runs
    assert +counted == hours
    for day in calendar.days:
        runs = [run for run in expected if run.date() == day.day]
        assert [(each.first, each.last) for each in day.schedules] == ([(runs[0], runs[-1])] if runs else [])
        if len(runs) <= 4:
            assert [run for each in day.schedules for run in each.times] == runs


def test_a_clock_change_is_marked_with_the_schedules_that_it_skips() -> None:
    now = datetime(2026, 3, 28, 12, tzinfo=UTC)
    berlin = {"nightly": "30 2 * * *", "early": "30 1 * * *", "hourly": "30 * * * *"}
    calendar = plan({name: Cron(text, tz="Europe/Berlin") for name, text in berlin.items()}, now, 1)
    (change,) = calendar.changes
    assert (change.zone, change.shift, change.skipped) == ("Europe/Berlin", timedelta(hours=1), [("q", "nightly")])
    assert change.at.isoformat() == "2026-03-29T03:00:00+02:00"
    assert "nightly" not in [each.scheduler for day in calendar.days for each in day.schedules]


def test_a_clock_change_of_the_last_days_names_the_schedules_that_it_skipped() -> None:
    ran = ms(datetime(2026, 3, 28, 1, 30, tzinfo=UTC))
    for hours, is_listed in ((0, True), (1, True), (22, True), (30, False)):
        now = datetime(2026, 3, 29, 1, 7, tzinfo=UTC) + timedelta(hours=hours)
        new = entry(Cron("30 2 * * *", tz="Europe/Berlin"), now)
        nightly = SchedulerEntry.parse(json.dumps(json.loads(new.dump()) | {"lastRun": ran}))
        assert nightly is not None
        calendar = plan_calendar({("q", "nightly"): nightly, ("q", "new"): new}, ms(now), days=1)
        assert [each.skipped for each in calendar.changes] == [[("q", "nightly")]] * is_listed, hours


def test_a_day_on_which_clocks_change_has_23_or_25_hours() -> None:
    lengths = []
    for day in (datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)):
        calendar = plan({"hourly": Cron("0 * * * *", tz="Europe/Berlin")}, day, 1, "Europe/Berlin")
        lengths.append((len(calendar.days[1].hours), calendar.days[1].runs))
    assert lengths == [(23, 23), (25, 25)]


def test_what_did_not_happen_as_planned_is_listed_latest_first() -> None:
    now = datetime(2026, 5, 5, 12, tzinfo=UTC)
    late = entry(Cron("0 * * * *", jitter=timedelta(minutes=5)), now - timedelta(days=1))
    hour, minute = 3_600_000, 60_000
    past = [
        PastRun(ms(now) - 3 * hour, ms(now) - 3 * hour + 5 * minute, "a", "fired"),
        PastRun(ms(now) - 4 * hour, ms(now) - 4 * hour + 7 * minute, "b", "fired"),
        PastRun(ms(now) - 5 * hour, ms(now) - 5 * hour, "", "overlap"),
        PastRun(ms(now) - 6 * hour, ms(now) - 2 * hour, "", "missed"),
        PastRun(ms(now) - 90 * hour, ms(now) - 90 * hour, "", "missed"),
    ]
    calendar = plan_calendar({("q", "s"): late}, ms(now), days=1, history={("q", "s"): past})
    assert [each.outcome for each in calendar.deviations] == ["late", "overlap", "missed", "overdue"]
    assert calendar.deviations[-1].at is None


def test_schedules_without_a_planned_run_say_why() -> None:
    now = datetime(2026, 5, 5, 12, tzinfo=UTC)
    hourly = entry(Cron("0 * * * *"), now)
    after = entry(RepeatAfterComplete(60), now)
    entries = {
        "paused": hourly.paused(),
        "running": after.planned(0),
        "over": SchedulerEntry({**hourly.members, "limit": 1, "iterationCount": 1}),
        "lost": SchedulerEntry({**hourly.members, "tz": "Mars/Base"}),
        "bad": SchedulerEntry({**hourly.members, "pattern": "nix"}),
        "due": after,
    }
    calendar = plan_calendar({("q", name): each for name, each in entries.items()}, ms(now) + 5)
    reasons = {each.scheduler: each.reason for each in calendar.unplanned}
    unreadable = "cannot be read here"
    assert reasons == {
        "paused": "paused", "running": "waits for its job", "over": "has ended", "lost": unreadable, "bad": unreadable,
    }  # fmt: skip
    assert calendar.runs == 1


def test_ten_thousand_schedules_take_bounded_time() -> None:
    now = datetime(2026, 5, 5, 12, tzinfo=UTC)
    every_second = entry(Every(1), now)
    minutes = [entry(Cron(f"{place} * * * *", tz="Europe/Berlin"), now) for place in range(60)]
    entries = {
        ("q", f"fast-{n}"): SchedulerEntry({**every_second.members, "nextRun": ms(now) + n}) for n in range(5000)
    }
    entries |= {("q", f"hourly-{n}"): minutes[n % 60] for n in range(5000)}
    began = time.process_time()
    calendar = plan_calendar(entries, ms(now), days=7)
    assert time.process_time() - began < 20  # about 0.3 s, but far beyond a minute if each run were evaluated
    assert [(len(day.schedules), day.more) for day in calendar.days] == [(100, 9900)] * 8
    assert calendar.runs > 3_000_000_000


BAD_INPUT: dict[str, tuple[Callable[[], object], type[OrchestrationQueueError], str]] = {
    "no days": (lambda: plan_calendar({}, 0, days=0), InvalidOptionError, "`days` must be a whole number from 1 to 31"),
    "too many days": (lambda: plan_calendar({}, 0, days=32), InvalidOptionError, "got 32"),
    "a flag": (lambda: plan_calendar({}, 0, days=True), InvalidOptionError, "got True"),
    "a zone": (lambda: plan_calendar({}, 0, zone="Mars/Base"), ScheduleError, "no zone of that name is known here"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused(case: str) -> None:
    call, error, message = BAD_INPUT[case]
    with pytest.raises(error, match=message):
        call()
