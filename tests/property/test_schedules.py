"""Any schedule: the next run is strictly later, keeps its phase, and is the one a patient clock would find."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestration_queue.errors import ScheduleError
from orchestration_queue.schedules import Cron, Policies, Timing, fire_id
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


def matches(meant: list[set[int]], at: datetime) -> bool:
    return all(
        value in allowed
        for value, allowed in zip((at.minute, at.hour, at.day, at.month, at.isoweekday() % 7), meant, strict=True)
    )


@settings(max_examples=150, deadline=None)
@given(st.tuples(*(fields(*bounds) for bounds in RANGES)), TIMES)
def test_cron_finds_what_counting_days_finds(pattern: tuple[tuple[str, set[int]], ...], after_ms: int) -> None:
    meant = [numbers for _, numbers in pattern]
    text = " ".join(words for words, _ in pattern)
    after = datetime.fromtimestamp(after_ms / 1000, UTC)
    times = [(hour, minute) for hour in sorted(meant[1]) for minute in sorted(meant[0])]
    expected = None
    day: date = after.date()
    horizon = day.replace(year=day.year + 10, day=min(day.day, 28) if day.month == 2 else day.day)
    while expected is None and day <= horizon:
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        if day.day in meant[2] and day.month in meant[3] and day.isoweekday() % 7 in meant[4]:
            of_day = (midnight + timedelta(hours=hour, minutes=minute) for hour, minute in times)
            expected = next((at for at in of_day if at > after), None)
        day += timedelta(days=1)
    if expected is None:
        with pytest.raises(ScheduleError, match="no occurrences"):
            CronPattern.parse(text).next_after(after_ms, UTC)
    else:
        assert CronPattern.parse(text).next_after(after_ms, UTC) == int(expected.timestamp() * 1000)


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
]


def first_match(meant: list[set[int]], after: datetime, zone: tzinfo, minutes: int) -> datetime | None:
    """Watch a clock, minute by minute, and take the first time it shows a match it has not shown before."""
    at = after.replace(second=0, microsecond=0)
    for _ in range(minutes):
        at += timedelta(minutes=1)
        shown = at.astimezone(zone)
        if shown.fold == 0 and matches(meant, shown):
            return at
    return None


@pytest.mark.parametrize(("name", "around"), JUMPS)
@settings(max_examples=25, deadline=None)
@given(minute=fields(0, 59), hour=fields(0, 23), seconds=st.integers(0, 3 * 3600))
def test_cron_finds_what_watching_a_clock_finds(
    name: str, around: str, minute: tuple[str, set[int]], hour: tuple[str, set[int]], seconds: int
) -> None:
    zone = ZoneInfo(name)
    after = datetime.fromisoformat(around).replace(tzinfo=UTC) + timedelta(seconds=seconds)
    every = [set(range(low, high + 1)) for low, high in RANGES[2:]]
    expected = first_match([minute[1], hour[1], *every], after, zone, minutes=3 * 1440)
    assert expected is not None
    assert Cron(f"{minute[0]} {hour[0]} * * *", tz=name).next_run(after) == expected


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
    assert (fire_id(name, due_ms) == fire_id(other, other_ms)) == ((name, due_ms) == (other, other_ms))


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
