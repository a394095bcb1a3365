"""Queues that move between ChasquiMQ's wire and ours: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.client import NewJob as OwnJob
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.schedules import Cron, Every, JobTemplate, RepeatAfterComplete
from orchestration_queue.states import JobState
from orchestration_queue.wires.chasquimq import (
    AsyncChasquiMove,
    AsyncChasquiQueue,
    BackoffSpec,
    ChasquiJob,
    NewChasquiJob,
)
from tests.chasquimq.working import working
from tests.waiting import wait_until
from tests.workers import working as serving

COUNT = 450
DUE = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
async def ours(server: Any, server_url: str, queue_name: str) -> AsyncIterator[AsyncQueue]:
    """Our queue, of the same name."""
    async with AsyncQueue(queue_name, url=server_url) as client:
        yield client


@pytest.fixture
async def move(queue: AsyncChasquiQueue, ours: AsyncQueue, server_url: str) -> AsyncIterator[AsyncChasquiMove]:
    """A move between the two."""
    async with AsyncChasquiMove(queue.name, ours.name, url=server_url) as mover:
        yield mover


async def test_jobs_and_schedules_move_to_ours(
    queue: AsyncChasquiQueue, ours: AsyncQueue, move: AsyncChasquiMove
) -> None:
    await queue.add_bulk([NewChasquiJob("ready", {"n": n}) for n in range(COUNT)])
    await queue.add("later", [1], delay_until=DUE, attempts=4, backoff=BackoffSpec.fixed(250), job_id="order:7")
    await queue.add("bytes", b"\x00")
    await queue.put_schedule(
        "nightly", {"a": 1}, cron="0 2 1 * MON", tz="Europe/Lisbon", missed_fires="fire_all", max_catchup=3
    )
    await queue.put_schedule("often", every=60, limit=5)
    moved = await move.to_ours()
    assert (moved.jobs, moved.delayed, moved.schedules, moved.left.total()) == (COUNT, 1, 2, 1)
    assert sorted(job.record.data["n"] for job in await ours.jobs(JobState.WAITING)) == list(range(COUNT))
    (later,) = await ours.jobs(JobState.DELAYED)
    assert (later.id, later.record.data, later.record.max_attempts) == ("order%3A7", [1], 4)
    assert later.record.options["backoff"] == {"type": "fixed", "delay": 250}
    schedules = await ours.schedulers.list()
    assert {entry.timing.every or entry.timing.pattern for entry in schedules.values()} == {60_000, "0 2 1 * 1"}
    left = await queue.counts()
    assert (left.ready, left.running, left.delayed, left.schedules) == (0, 1, 0, 0)


async def test_jobs_and_schedules_move_to_chasquimq(
    queue: AsyncChasquiQueue, ours: AsyncQueue, move: AsyncChasquiMove, server_url: str
) -> None:
    await ours.add_bulk([OwnJob("ready", {"n": n}) for n in range(COUNT)])
    await ours.add("urgent", options=JobOptions(priority=3))
    hour = timedelta(hours=1)
    options = JobOptions(delay=hour, attempts=4, backoff=Backoff(type="fixed", delay=timedelta(milliseconds=250)))
    later = await ours.add("later", [1], options)
    async with AsyncFlowProducer(url=server_url) as flows:
        await flows.submit(Dag("flow", [Node("a"), Node("b", deps=["a"])], ours.name))
    await ours.schedulers.upsert("nightly", Cron("0 2 * * MON", "Europe/Lisbon"), JobTemplate(data={"a": 1}))
    await ours.schedulers.upsert("again", RepeatAfterComplete(5.0))
    moved = await move.to_theirs()
    assert (moved.jobs, moved.delayed, moved.schedules) == (COUNT, 2, 1)
    assert sum(number for reason, number in moved.left.items() if "after its last job" in reason) == 1
    counts = await queue.counts()
    assert (counts.ready, counts.delayed, counts.schedules) == (COUNT + 1, 1, 1)
    ((due, found),) = await queue.list_delayed()
    assert (found.id, found.data) == (later.id, [1])
    assert abs(due - datetime.now(UTC) - hour) < timedelta(minutes=5)
    assert {job.name for job in await ours.jobs(JobState.WAITING)} == {"a"}
    assert not await ours.is_paused()


async def test_a_move_that_was_interrupted_is_finished_by_the_next(
    queue: AsyncChasquiQueue, ours: AsyncQueue, server: Any, server_url: str
) -> None:
    jobs = await queue.add_bulk([NewChasquiJob("ready", n) for n in range(COUNT)])
    async with AsyncChasquiMove(queue.name, ours.name, url=server_url) as first:
        moving = asyncio.ensure_future(first.to_ours())
        await wait_until(lambda: server.exists(ours.keys.stream), "the first jobs to have moved")
        moving.cancel()
        await asyncio.wait([moving])
    # What the first move had taken belongs to it until its lease has run out, as a killed worker's jobs do.
    stream, group = queue.keys.stream, "default"
    for entry in server.xpending_range(stream, group, "-", "+", COUNT):
        server.xclaim(stream, group, "gone", 0, [entry["message_id"]], idle=3_600_000, justid=True)
    ran: list[str] = []

    async def work(job: ChasquiJob) -> None:
        ran.append(job.id)

    async with AsyncChasquiMove(queue.name, ours.name, url=server_url) as second:
        await second.to_ours()
    async with working(queue.name, work, server_url):
        await wait_until(lambda: server.xlen(stream) == 0, "the jobs that the first move had taken to run")
    here = {job.id for job in await ours.jobs(JobState.WAITING)}
    assert here | set(ran) == {job.id for job in jobs}
    assert len(here) == len(await ours.jobs(JobState.WAITING))


async def test_workers_of_both_run_while_a_queue_moves(
    queue: AsyncChasquiQueue, ours: AsyncQueue, move: AsyncChasquiMove, server: Any, server_url: str
) -> None:
    ran: list[str] = []

    async def work(job: Any) -> None:
        ran.append(job.id)
        await asyncio.sleep(0)

    jobs = await queue.add_bulk([NewChasquiJob("ready", n, delay=n % 3 / 10) for n in range(COUNT)])
    async with working(queue.name, work, server_url, concurrency=5), serving(ours, work, server_url):
        await move.to_ours()
        await wait_until(lambda: len(ran) >= COUNT, "all jobs to run")
    assert sorted(ran) == sorted(job.id for job in jobs)


async def test_a_second_queue_name_of_nothing_moves_nothing(move: AsyncChasquiMove) -> None:
    moved = [await move.to_ours(), await move.to_theirs()]
    assert [(one.jobs, one.delayed, one.schedules, one.left.total()) for one in moved] == [(0, 0, 0, 0)] * 2


async def test_a_schedule_that_restricts_both_days_stays_unless_it_means_or(
    queue: AsyncChasquiQueue, ours: AsyncQueue, move: AsyncChasquiMove
) -> None:
    await ours.schedulers.upsert("and", Cron("0 2 1 * MON", day_or=False))
    await ours.schedulers.upsert("or", Cron("0 2 1 * MON", day_or=True))
    await ours.schedulers.upsert("often", Every(5))
    moved = await move.to_theirs()
    assert (moved.schedules, moved.left.total()) == (2, 1)
    assert set(await ours.schedulers.list()) == {"and"}
