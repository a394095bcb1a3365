"""Any schedule: the next run is strictly later, keeps its phase, and is the one that a search by minutes finds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestration_queue.errors import ScheduleError
from orchestration_queue.schedules import Cron, Policies, Timing, scheduled_job_id
from orchestration_queue.schedules.cron import CronPattern

RANGES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]
TIMES = st.integers(0, 4_000_000_000_000)
LENGTHS = st.integers(1, 10**11)


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> tuple[str, set[int]]:
    """A field's text, and the numbers it means, worked out by counting."""
    if draw(st.booleans()):
        return "*", set(range(low, high + 1))
    texts, meant = [], set()
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        step = draw(st.integers(1, 70))
        text, numbers = draw(
            st.sampled_from(
                [
                    (f"{first}", {first}),
                    (f"{first}-{last}", set(range(first, last + 1))),
                    (f"{first}-{last}/{step}", {n for n in range(first, last + 1) if (n - first) % step == 0}),
                    (f"*/{step}", {n for n in range(low, high + 1) if (n - low) % step == 0}),
                ]
            )
        )
        texts.append(text)
        meant |= numbers
    return ",".join(texts), meant


@settings(max_examples=150, deadline=None)
@given(st.tuples(*(fields(*bounds) for bounds in RANGES)), TIMES, st.booleans())
def test_cron_finds_what_counting_days_finds(
    pattern: tuple[tuple[str, set[int]], ...], after_ms: int, day_or: bool
) -> None:
    meant = [numbers for _, numbers in pattern]
    text = " ".join(words for words, _ in pattern)
    after = datetime.fromtimestamp(after_ms / 1000, UTC)
    times = [(hour, minute) for hour in sorted(meant[1]) for minute in sorted(meant[0])]
    either = day_or and len(meant[2]) < 31 and len(meant[4]) < 7
    expected = None
    day: date = after.date()
    horizon = day.replace(year=day.year + 10, day=min(day.day, 28) if day.month == 2 else day.day)
    while expected is None and day <= horizon:
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        days = (day.day in meant[2], day.isoweekday() % 7 in meant[4])
        if day.month in meant[3] and (any(days) if either else all(days)):
            of_day = (midnight + timedelta(hours=hour, minutes=minute) for hour, minute in times)
            expected = next((at for at in of_day if at > after), None)
        day += timedelta(days=1)
    if expected is None:
        with pytest.raises(ScheduleError, match="no occurrences"):
            CronPattern.parse(text, day_or=day_or).next_after(after_ms, UTC)
    else:
        assert CronPattern.parse(text, day_or=day_or).next_after(after_ms, UTC) == int(expected.timestamp() * 1000)


# An hour or so before a clock jumps, in UTC.
JUMPS = [
    ("Europe/Berlin", "2024-03-31 00:00"),
    ("Europe/Berlin", "2024-10-26 23:30"),
    ("America/New_York", "2024-03-10 06:00"),
    ("America/New_York", "2024-11-03 04:30"),
    ("Australia/Lord_Howe", "2024-04-06 14:00"),
    ("Australia/Lord_Howe", "2024-10-05 14:30"),
    ("America/Sao_Paulo", "2018-11-04 02:00"),
    ("America/Sao_Paulo", "2018-02-18 00:00"),
    ("Africa/Casablanca", "2024-03-10 01:00"),
    ("Africa/Casablanca", "2024-04-14 01:00"),
    ("Pacific/Apia", "2011-12-30 08:00"),
    ("Africa/Cairo", "2024-04-25 20:00"),
    ("Africa/Cairo", "2024-10-31 19:00"),
    ("Asia/Tehran", "2022-03-21 19:00"),
    ("Asia/Tehran", "2022-09-21 18:00"),
    ("Antarctica/Troll", "2024-03-31 00:00"),
    ("Antarctica/Troll", "2024-10-26 23:00"),
    ("Pacific/Chatham", "2038-04-03 12:00"),
]


@lru_cache(maxsize=4)
def shown_after(zone: str, around: str) -> list[tuple[datetime, datetime]]:
    """Two days of a clock: each minute, and what it shows then."""
    first = datetime.fromisoformat(around).replace(tzinfo=UTC) - timedelta(hours=12)
    minutes = (first + timedelta(minutes=minute) for minute in range(2 * 1440))
    return [(at, at.astimezone(ZoneInfo(zone))) for at in minutes]


@pytest.mark.parametrize(("name", "around"), JUMPS)
@settings(max_examples=10, deadline=None)
@given(fields(0, 59), fields(0, 23), fields(1, 31), fields(0, 6), st.integers(0, 1439), st.booleans())
def test_cron_finds_all_that_watching_a_clock_finds(
    name: str,
    around: str,
    minute: tuple[str, set[int]],
    hour: tuple[str, set[int]],
    day: tuple[str, set[int]],
    weekday: tuple[str, set[int]],
    skipped: int,
    day_or: bool,
) -> None:
    watched = shown_after(name, around)[skipped:]
    either = day_or and len(day[1]) < 31 and len(weekday[1]) < 7

    def matches_at(shown: datetime) -> bool:
        days = (shown.day in day[1], shown.isoweekday() % 7 in weekday[1])
        is_due = shown.fold == 0 or hour[0].startswith("*")
        return is_due and shown.minute in minute[1] and shown.hour in hour[1] and (any(days) if either else all(days))

    expected = [at for at, shown in watched[1:] if matches_at(shown)]
    timing = Cron(f"{minute[0]} {hour[0]} {day[0]} * {weekday[0]}", tz=name, day_or=day_or).timing
    first_ms, last_ms = (int(at.timestamp() * 1000) for at in (watched[0][0], watched[-1][0]))
    found = timing.runs_until(first_ms + 1, last_ms, len(watched))
    assert found == [int(at.timestamp() * 1000) for at in expected]


@given(LENGTHS, st.none() | TIMES, TIMES, st.integers(0, 10**12))
def test_every_is_strictly_later_and_keeps_its_phase(
    every: int, start_ms: int | None, now_ms: int, late_ms: int
) -> None:
    timing = Timing(every=every, start_date=start_ms)
    first_ms = timing.first_run(now_ms)
    assert first_ms is not None
    assert first_ms >= now_ms
    assert (first_ms - (now_ms if start_ms is None else start_ms)) % every == 0
    if start_ms is not None:
        assert first_ms >= start_ms
    tick_ms = first_ms + late_ms
    following_ms = timing.following_run(first_ms, tick_ms)
    assert following_ms is not None
    assert tick_ms < following_ms <= tick_ms + every
    assert (following_ms - first_ms) % every == 0


@given(st.sampled_from(["*/7 * * * *", "0 3 * * 1-5", "30 2 29 * *"]), st.sampled_from(JUMPS), TIMES, TIMES)
def test_cron_is_strictly_later_and_within_its_bounds(
    pattern: str, zone: tuple[str, str], now_ms: int, end_ms: int
) -> None:
    timing = Timing(pattern=pattern, tz=zone[0], end_date=end_ms)
    first_ms = timing.first_run(now_ms)
    if first_ms is None:
        unbounded_ms = Timing(pattern=pattern, tz=zone[0]).first_run(now_ms)
        assert unbounded_ms is not None
        assert unbounded_ms > end_ms
        return
    assert now_ms <= first_ms <= end_ms
    following_ms = timing.following_run(first_ms, first_ms)
    assert following_ms is None or first_ms < following_ms <= end_ms


@given(st.text(), st.text(), TIMES, TIMES)
def test_fire_ids_differ_unless_name_and_time_agree(name: str, other: str, due_ms: int, other_ms: int) -> None:
    assert (scheduled_job_id(name, due_ms) == scheduled_job_id(other, other_ms)) == (
        (name, due_ms) == (other, other_ms)
    )


@given(st.text(min_size=1), TIMES, st.integers(0, 10**7))
def test_jitter_is_the_same_for_every_leader_and_within_its_bound(name: str, due_ms: int, most_ms: int) -> None:
    delays = {Policies(jitter_ms=most_ms).delay_ms(name, due_ms) for _ in range(2)}
    assert len(delays) == 1
    assert 0 <= delays.pop() <= most_ms


@given(st.integers(1, 10**7), st.integers(0, 10**8), st.integers(1, 20), st.booleans())
def test_missed_runs_are_the_latest_ones_in_order(every: int, late_ms: int, most: int, is_cron: bool) -> None:
    timing = Timing(pattern="*/7 * * * *") if is_cron else Timing(every=every)
    due_ms = timing.first_run(1_700_000_000_000)
    assert due_ms is not None
    runs, run_ms = [], due_ms
    first_ms = due_ms if is_cron or late_ms < 500 * every else due_ms + late_ms // every * every - 100 * every
    run_ms = first_ms
    while run_ms is not None and run_ms <= due_ms + late_ms:
        runs.append(run_ms)
        following_ms = timing.following_run(run_ms, run_ms)
        assert following_ms is not None
        run_ms = following_ms
    assert timing.runs_until(due_ms, due_ms + late_ms, most) == runs[-most:]
