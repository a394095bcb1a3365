"""Time travel: whatever the wire's clients time, follows, and workers notice at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from orchestration_queue import (
    Deduplication,
    Every,
    JobOptions,
    JobTemplate,
    Ordering,
    Queue,
    RateLimit,
    WorkerOptions,
)
from orchestration_queue.errors import UsageError
from orchestration_queue.server import clock
from orchestration_queue.testing import TimeMachine, drain
from tests.testing.conftest import Workshop
from tests.waiting import wait_until_sync

DAY = timedelta(days=1)
SLEEPY = WorkerOptions(promotion_interval=timedelta(hours=1))
"""A worker that would sleep through any test."""


def test_time_goes_on_from_where_one_arrives(oq_clock: TimeMachine) -> None:
    arrival = oq_clock.travel_to(datetime(2031, 5, 1, tzinfo=UTC))
    assert timedelta(0) <= arrival - datetime(2031, 5, 1, tzinfo=UTC) < timedelta(seconds=60)
    wait_until_sync(lambda: oq_clock.now() > arrival, "the clock to continue")
    assert oq_clock.travel(30) - arrival >= timedelta(seconds=30), "a plain number means seconds"


def test_other_time_zones_mean_the_same_moment(oq_clock: TimeMachine) -> None:
    oq_clock.travel_to(datetime(2031, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert oq_clock.now().replace(microsecond=0, second=0) == datetime(2031, 5, 1, tzinfo=UTC)


def test_the_past_can_be_visited(oq_clock: TimeMachine) -> None:
    oq_clock.travel_to(datetime(2024, 10, 27, tzinfo=UTC))
    assert oq_clock.now().year == 2024
    oq_clock.travel(-DAY)
    assert oq_clock.now().day == 26


def test_the_clock_is_set_back_to_where_each_machine_was_entered() -> None:
    with TimeMachine() as outer:
        outer.travel(DAY)
        with TimeMachine() as inner:
            inner.travel(DAY)
            assert clock.ahead() > 1.9 * DAY
        assert 0.9 * DAY < clock.ahead() < 1.1 * DAY
        assert TimeMachine.is_open()
    assert clock.ahead() == timedelta(0)
    assert not TimeMachine.is_open()


@pytest.mark.parametrize(
    "go",
    [
        lambda machine: machine.travel_to(datetime(2031, 5, 1)),  # noqa: DTZ001
        lambda machine: machine.travel_to(datetime(2200, 1, 1, tzinfo=UTC)),
        lambda machine: machine.travel_to(datetime(1969, 1, 1, tzinfo=UTC)),
        lambda machine: machine.travel(100 * 365 * DAY),
        lambda machine: machine.travel(timedelta.max),
        lambda machine: machine.travel(math.inf),
        lambda machine: machine.travel(math.nan),
    ],
    ids=["naive", "far", "early", "long", "longest", "endless", "nowhere"],
)
def test_journeys_to_nowhere_are_refused(go: Callable[[TimeMachine], Any], oq_clock: TimeMachine) -> None:
    with pytest.raises(UsageError):
        go(oq_clock)
    assert clock.ahead() == timedelta(0)


def test_a_sleeping_worker_notices_that_a_delayed_job_is_due(
    oq_queue: Queue, workshop: Workshop, oq_worker: Any, oq_clock: TimeMachine
) -> None:
    job = oq_queue.add("double", {"n": 4}, JobOptions(delay=30 * DAY))
    worker = oq_worker(oq_queue, workshop.tasks, options=SLEEPY)
    wait_until_sync(lambda: worker.is_listening, "the worker to sleep")
    oq_clock.travel(29 * DAY)
    assert job.refresh().state == "delayed"
    oq_clock.travel(DAY)
    assert job.wait(60) == 8


def test_a_sleeping_worker_fires_a_month_of_a_schedule_day_by_day(
    oq_queue: Queue, workshop: Workshop, oq_worker: Any, oq_clock: TimeMachine
) -> None:
    oq_queue.schedulers.upsert("daily", Every(DAY), JobTemplate(name="note"))
    worker = oq_worker(oq_queue, workshop.tasks, options=SLEEPY)
    wait_until_sync(lambda: worker.is_listening, "the worker to sleep")
    before = len(workshop.ran)
    for day in range(1, 31):
        oq_clock.travel(DAY)
        wait_until_sync(lambda day=day: len(workshop.ran) == before + day, f"the run of day {day}")  # type: ignore[misc]
    wait_until_sync(lambda: len(oq_queue.jobs("completed")) == before + 30, "the last run to be told")


def test_the_window_of_a_groups_rate_limit_passes(oq_queue: Queue, workshop: Workshop, oq_clock: TimeMachine) -> None:
    limit = RateLimit(max=1, duration=timedelta(hours=1))
    for n in range(2):
        oq_queue.add("double", {"n": n}, JobOptions(ordering=Ordering(key="k", rate_limit=limit)))
    assert len(drain(oq_queue, workshop.tasks)) == 1
    oq_clock.travel(timedelta(minutes=59))
    assert drain(oq_queue, workshop.tasks) == []
    oq_clock.travel(timedelta(minutes=2))
    assert len(drain(oq_queue, workshop.tasks)) == 1


def test_the_window_of_the_queues_rate_limit_passes(
    oq_queue: Queue, workshop: Workshop, oq_worker: Any, oq_clock: TimeMachine
) -> None:
    oq_queue.set_global_rate_limit(RateLimit(max=1, duration=DAY))
    jobs = [oq_queue.add("double", {"n": n}) for n in range(3)]
    oq_worker(oq_queue, workshop.tasks, options=SLEEPY)
    for n, job in enumerate(jobs):
        assert job.wait(60) == 2 * n
        assert workshop.ran == list(range(n + 1)), "one a day"
        oq_clock.travel(DAY)


def test_a_throttle_lets_the_next_job_pass_after_its_time(oq_queue: Queue, oq_clock: TimeMachine) -> None:
    once_an_hour = JobOptions(deduplication=Deduplication(id="d", mode="throttle", ttl=timedelta(hours=1)))
    assert oq_queue.add("report", options=once_an_hour).is_new
    assert not oq_queue.add("report", options=once_an_hour).is_new
    oq_clock.travel(timedelta(hours=1))
    assert oq_queue.add("report", options=once_an_hour).is_new


def test_finished_jobs_grow_old(oq_queue: Queue, workshop: Workshop, oq_clock: TimeMachine) -> None:
    oq_queue.add("note")
    drain(oq_queue, workshop.tasks)
    assert oq_queue.clean(7 * DAY) == []
    oq_clock.travel(8 * DAY)
    assert oq_queue.clean(7 * DAY) == ["1"]


def test_listeners_hear_of_every_journey_until_they_leave() -> None:
    heard: list[timedelta] = []
    forget = clock.on_travel(lambda: heard.append(clock.ahead()))
    with TimeMachine() as machine:
        machine.travel(DAY)
    forget()
    forget()
    clock.travel(timedelta(0))
    assert [round(distance / DAY) for distance in heard] == [1, 0]


async def test_a_sleeper_can_be_cancelled_in_the_moment_of_a_journey() -> None:
    async def sleep_on() -> None:
        with clock.Sleeper() as sleeper:
            while True:
                await sleeper.sleep(3600)

    sleeping = asyncio.ensure_future(sleep_on())
    await asyncio.sleep(0)
    clock.travel(clock.ahead())
    await asyncio.sleep(0)  # the sleeper's event is set, and its task has not run
    sleeping.cancel()
    done, _ = await asyncio.wait({sleeping}, timeout=30)
    assert done


async def test_a_journey_between_two_sleeps_ends_the_next_one() -> None:
    with clock.Sleeper() as sleeper:
        clock.travel(clock.ahead())
        await sleeper.sleep(3600)
