"""When repeatable jobs fire: the dialect of cron, clock changes, and fires that were missed."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from orchestration_queue.errors import ScheduleError
from orchestration_queue.wires.chasquimq.cron import parse_cron, parse_zone
from orchestration_queue.wires.chasquimq.repeat import (
    ChasquiCron,
    EveryPattern,
    RepeatSpec,
    due_fires,
    first_fire,
)
from tests.chasquimq.vectors import VECTORS

FIRES = [case for case in VECTORS["cron_next"] if case.get("next_ms")]
REFUSED = [case for case in VECTORS["cron_next"] if "error" in case]


@pytest.mark.parametrize("case", FIRES, ids=lambda case: f"{case['expr']}|{case['tz']}")
def test_cron_fires_when_the_original_fires(case: dict[str, Any]) -> None:
    cron, zone = parse_cron(case["expr"]), parse_zone(case["tz"])
    at: int | None = case["from_ms"]
    fires = []
    for _ in case["next_ms"]:
        assert at is not None
        at = cron.next_after(at, zone)
        fires.append(at)
    assert fires == case["next_ms"]


GAP = {
    "30 2 * * *": ["14 03:00", "15 02:30"],
    "0 2,3 * * *": ["14 03:00", "15 02:00"],
    "30 2,3 * * *": ["14 03:30", "15 02:30"],
    "30 1-3 * * *": ["14 01:30", "14 03:30", "15 01:30"],
    "30 2-2 * * *": ["14 03:00", "15 02:30"],
    "*/30 2 * * *": ["15 02:00", "15 02:30"],
    "0,30 2 * * *": ["15 02:00", "15 02:30"],
    "30 * * * *": ["14 00:30", "14 01:30", "14 03:30"],
    "0 0-23/2 * * *": ["14 00:00", "14 04:00"],
    "30 30 2 * * *": ["14 03:00", "15 02:30"],
    "0-5 30 2 * * *": ["15 02:30", "15 02:30"],
    "30 2 14 * *": ["14 03:00"],
}
"""What the original fires in New York, where the clocks skip the hour from 02:00 of 14 March 2027, from midnight on."""


@pytest.mark.parametrize("expression", GAP)
def test_a_skipped_time_fires_after_the_gap_if_it_is_the_only_one(expression: str) -> None:
    zone = ZoneInfo("America/New_York")
    at: int | None = int(datetime(2027, 3, 13, 23, 59, 59, tzinfo=zone).timestamp()) * 1000
    fires = []
    for _ in GAP[expression]:
        assert at is not None
        at = parse_cron(expression).next_after(at, zone)
        assert at is not None
        fires.append(datetime.fromtimestamp(at / 1000, zone).strftime("%d %H:%M"))
    assert fires == GAP[expression]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["expr"])
def test_cron_refuses_what_the_original_refuses(case: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError):
        first_fire(
            RepeatSpec("n", ChasquiCron(case["expr"], case["tz"]), b""),
            VECTORS["repeat_spec"][0]["next_fire_ms"],
        )


@pytest.mark.parametrize(
    "expression", ["", "* * *", "a * * * *", "*/0 * * * *", "5-1 * * * *", "0 0 * * 5#6", "0 0 W * *"]
)
def test_broken_patterns_are_refused(expression: str) -> None:
    with pytest.raises(ScheduleError, match="cannot be read"):
        parse_cron(expression)


@pytest.mark.parametrize("zone", ["europe/lisbon", "Mars/X", "+25:00", "../etc"])
def test_unknown_zones_are_refused(zone: str) -> None:
    with pytest.raises(ScheduleError, match=r"Time zone .* is unknown"):
        parse_zone(zone)


@pytest.mark.parametrize("zone", ["localtime", "posixrules", "Factory", "right/UTC", "Posix/Europe/Lisbon"])
def test_zones_of_a_machine_are_refused(zone: str) -> None:
    with pytest.raises(ScheduleError, match=r"Time zone .* depends on the machine"):
        parse_zone(zone)


def every(interval_ms: int, **rules: Any) -> RepeatSpec:
    return RepeatSpec("n", EveryPattern(interval_ms), b"", **rules)


def test_a_fire_on_time_keeps_its_cadence() -> None:
    assert due_fires(every(1000), 5000, 5300) == ([5000], 6000)


@pytest.mark.parametrize(
    ("rules", "fires"),
    [
        ({"missed_fires": "fire_once"}, 1),
        ({"missed_fires": "fire_all", "max_catchup": 3}, 3),
        ({"missed_fires": "fire_all", "max_catchup": 1000}, 7),
    ],
)
def test_missed_fires_are_made_up_for_as_the_policy_says(rules: Any, fires: int) -> None:
    # Measured with the original: every 10 s, found 65 s late.
    found, following = due_fires(every(10_000, **rules), 100_000, 165_000)
    assert (len(found), following) == (fires, 170_000)


def test_skip_drops_what_is_old_but_not_what_is_due() -> None:
    assert due_fires(every(300), 1000, 2000) == ([1000], 2200)
    assert due_fires(every(10_000), 100_000, 165_000) == ([100_000], 170_000)
    assert due_fires(every(60_000), 100_000, 240_000) == ([], 280_000)


def test_skip_of_a_cron_keeps_the_fraction_of_its_cadence() -> None:
    spec = RepeatSpec("n", ChasquiCron("* * * * *"), b"")
    assert due_fires(spec, 60_502, 210_000) == ([], 240_502)
    assert due_fires(spec, 60_502, 185_000) == ([60_502], 240_502)


def test_a_spec_that_ends_before_it_fires_is_refused() -> None:
    with pytest.raises(ScheduleError, match="never fires"):
        first_fire(every(1000, end_before_ms=500), 0)
