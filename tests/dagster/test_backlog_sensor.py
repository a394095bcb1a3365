"""A backlog that is too long for a time is told once, and again after it was short."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from orchestration_queue.dagster import Limits, QueueResource, backlog_sensor
from orchestration_queue.dagster.sensors.backlog import Alarm
from orchestration_queue.errors import InvalidNameError, InvalidOptionError
from orchestration_queue.testing import TimeMachine
from tests.dagster.ticks import target, tick

pytestmark = pytest.mark.dagster

TEN, HOUR = timedelta(seconds=10), timedelta(hours=1)


def made(queue: str, limits: Limits, **options: Any) -> dg.SensorDefinition:
    return backlog_sensor(queue, limits=limits, **{"job": target, **options})


def add(resource: QueueResource, queue: str, count: int) -> None:
    for _ in range(count):
        resource.queue(queue).add("work", {})


def test_a_deep_backlog_asks_for_one_run_until_it_was_short(resource: QueueResource, queue_name: str) -> None:
    sensor, cursor = made(queue_name, Limits(depth=4)), None
    asked = []
    for more in (3, 1, 1, 0, 4):
        if more:
            add(resource, queue_name, more)
        else:
            resource.queue(queue_name).drain()
        result = tick(sensor, resource, cursor)
        cursor = result.cursor
        asked.append(len(result.run_requests))
    assert asked == [0, 1, 0, 0, 1]


def test_the_run_tells_how_long_the_backlog_is(resource: QueueResource, queue_name: str) -> None:
    add(resource, queue_name, 2)
    with TimeMachine() as clock:
        clock.travel(TEN)
        result = tick(made(queue_name, Limits(age=TEN)), resource, None)
    (request,) = result.run_requests
    assert request.tags["orchestration_queue/waiting"] == "2"
    assert request.tags["orchestration_queue/source_queue"] == queue_name
    assert 10 <= int(request.tags["orchestration_queue/oldest_seconds"]) < 60
    assert request.run_key == f"{queue_name}:{json.loads(result.cursor or '')['since_ms']}"


def test_a_young_or_short_backlog_asks_for_nothing(resource: QueueResource, queue_name: str) -> None:
    add(resource, queue_name, 2)
    result = tick(made(queue_name, Limits(depth=3, age=HOUR)), resource, None)
    assert not result.run_requests
    assert "2 jobs wait" in (result.skip_message or "")


def test_a_backlog_has_to_be_long_for_a_time(resource: QueueResource, queue_name: str) -> None:
    add(resource, queue_name, 1)
    sensor = made(queue_name, Limits(depth=1), hold=HOUR)
    first = tick(sensor, resource, None)
    assert not first.run_requests
    state = json.loads(first.cursor or "")
    an_hour_ago = json.dumps({**state, "since_ms": state["since_ms"] - 3_600_000})
    assert len(tick(sensor, resource, an_hour_ago).run_requests) == 1


@pytest.mark.parametrize(
    ("before", "is_too_long", "is_short", "after"),
    [
        (Alarm(), False, True, Alarm()),
        (Alarm(), True, False, Alarm(1000)),
        (Alarm(995), True, False, Alarm(995)),
        (Alarm(900), True, False, Alarm(900, is_raised=True)),
        (Alarm(900), False, False, Alarm()),  # a break: it starts again
        (Alarm(900, is_raised=True), True, False, Alarm(900, is_raised=True)),
        (Alarm(900, is_raised=True), False, False, Alarm(900, is_raised=True)),  # between both limits
        (Alarm(900, is_raised=True), False, True, Alarm()),
    ],
)
def test_the_alarm_comes_and_goes(before: Alarm, is_too_long: bool, is_short: bool, after: Alarm) -> None:
    hold = timedelta(milliseconds=100)
    assert before.update(1000, hold, is_too_long=is_too_long, is_short=is_short) == after
    assert Alarm.load(after.dump()) == after


@pytest.mark.parametrize(
    ("limits", "waiting", "oldest", "is_too_long", "is_short"),
    [
        (Limits(depth=4), 4, HOUR, True, False),
        (Limits(depth=4), 3, HOUR, False, False),
        (Limits(depth=4), 1, HOUR, False, True),
        (Limits(depth=1), 0, TEN, False, True),
        (Limits(depth=4, clear_depth=4), 3, HOUR, False, True),
        (Limits(age=TEN), 99, TEN, True, False),
        (Limits(age=TEN), 99, timedelta(seconds=6), False, False),
        (Limits(age=TEN), 99, timedelta(seconds=4), False, True),
        (Limits(age=TEN, clear_age=timedelta(seconds=2)), 99, timedelta(seconds=4), False, False),
        (Limits(depth=4, age=TEN), 0, TEN, True, False),
        (Limits(depth=4, age=TEN), 4, timedelta(0), True, False),
    ],
)
def test_limits_say_what_is_too_long_and_what_is_short(
    limits: Limits, waiting: int, oldest: timedelta, is_too_long: bool, is_short: bool
) -> None:
    assert limits.is_too_long(waiting, oldest) is is_too_long
    assert limits.is_short(waiting, oldest) is is_short


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"depth": 0},
        {"age": timedelta(0)},
        {"depth": 4, "clear_depth": 5},
        {"depth": 4, "clear_depth": 0},
        {"depth": 4, "clear_age": TEN},
        {"age": TEN, "clear_age": HOUR},
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        Limits(**limits)


@pytest.mark.parametrize("options", [{"hold": -TEN}, {"interval": timedelta(0)}, {"wait": TEN}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        made("q", Limits(depth=1), **options)


def test_it_stands_as_the_options_say() -> None:
    sensor = made("q-1", Limits(depth=1), interval=TEN, description="Shown.", resource_key="other")
    assert (sensor.name, sensor.minimum_interval_seconds, sensor.description) == ("backlog_of_q_1", 10, "Shown.")
    assert sensor.required_resource_keys == {"other"}
    with pytest.raises(InvalidNameError):
        made("a:b", Limits(depth=1))
