"""A qless queue moves to a queue of ours: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.states import JobState
from orchestration_queue.wires.qless import AsyncQlessClient, AsyncQlessMove
from orchestration_queue.wires.qless.moving import TAGS_HEADER
from tests.waiting import wait_until
from tests.workers import working

COUNT = 450


@pytest.fixture
async def qless(server: redis.Redis, server_url: str) -> AsyncIterator[AsyncQlessClient]:
    async with AsyncQlessClient(url=server_url, worker="me") as client:
        yield client


@pytest.fixture
async def ours(server: redis.Redis, server_url: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue("q", url=server_url) as queue:
        yield queue


@pytest.fixture
async def move(ours: AsyncQueue, server_url: str) -> AsyncIterator[AsyncQlessMove]:
    async with AsyncQlessMove("q", url=server_url) as mover:
        yield mover


async def test_ready_jobs_keep_order_data_retries_and_tags(
    qless: AsyncQlessClient, ours: AsyncQueue, move: AsyncQlessMove, server: redis.Redis
) -> None:
    for number in range(COUNT):
        await qless.put("q", "app.Import", {"n": number}, retries=2)
    await qless.put("q", "app.Urgent", priority=10, tags=["red", "blue"], jid="a:b", retries=0)
    (_, *expected) = await qless.peek("q", COUNT + 1)
    moved = await move.to_ours()
    assert (moved.jobs, moved.delayed, moved.dependent, moved.schedules) == (COUNT + 1, 0, 0, 0)
    assert not moved.left
    jobs = await ours.jobs(JobState.WAITING, limit=None)
    assert [job.record.data["n"] for job in jobs] == [job.data["n"] for job in expected]
    assert {(job.name, job.record.max_attempts) for job in jobs} == {("app.Import", 3)}
    urgent = await ours.get("a%3Ab")
    assert (urgent.name, urgent.record.max_attempts, urgent.record.options["priority"]) == ("app.Urgent", 1, 2038)
    assert urgent.record.options["headers"] == {TAGS_HEADER: '["red", "blue"]'}
    counts = await qless.counts("q")
    assert (counts.waiting, counts.paused) == (0, False)
    assert not server.exists("ql:t:red")


async def test_delayed_and_recurring_jobs_keep_their_times(
    qless: AsyncQlessClient, ours: AsyncQueue, move: AsyncQlessMove
) -> None:
    await qless.put("q", "K", delay=timedelta(hours=1), jid="later")
    await qless.recur("q", "Nightly", {"a": 1}, interval=600, offset=60, jid="nightly", retries=3, backlog=2)
    await qless.recur("q", "Late", interval=0.5, jid="late")
    moved = await move.to_ours()
    assert (moved.delayed, moved.schedules, moved.jobs >= 1, moved.left.total()) == (1, 2, True, 0)
    (later,) = await ours.jobs(JobState.DELAYED)
    assert later.id == "later"
    nightly = (await ours.schedulers.list())["nightly"]
    assert (nightly.timing.every, nightly.template["name"], nightly.template["data"]) == (600_000, "Nightly", {"a": 1})
    assert (nightly.template["opts"]["attempts"], nightly.policies.missed_max) == (4, 3)
    (soonest, after) = await ours.schedulers.next_runs("nightly", 2)
    assert soonest - datetime.now(UTC) < timedelta(seconds=61)
    assert after - soonest == timedelta(seconds=600)
    assert await qless.jobs("q", "recurring") == []


async def test_jobs_that_wait_for_each_other_become_a_flow(
    qless: AsyncQlessClient, ours: AsyncQueue, move: AsyncQlessMove, server_url: str
) -> None:
    first = await qless.put("q", "load", {"n": 1}, delay=0.01)
    other = await qless.put("q", "load", {"n": 2}, priority=3)
    last = await qless.put("q", "join", {"n": 3}, depends=[first, other], tags=["red"])
    moved = await move.to_ours()
    assert (moved.jobs, moved.delayed, moved.dependent, moved.flows) == (0, 0, 3, 1)
    assert await qless.get_many([first, other, last]) == []
    ran: list[int] = []

    async def work(job: Any) -> None:
        ran.append(job.data["n"])

    async with working(ours, work, server_url):
        await wait_until(lambda: len(ran) == 3, "the flow to run")
    assert (set(ran[:2]), ran[2]) == ({1, 2}, 3)


async def test_what_cannot_move_stays_and_is_counted_with_the_reason(
    qless: AsyncQlessClient, ours: AsyncQueue, move: AsyncQlessMove
) -> None:
    await qless.put("elsewhere", "K", jid="away")
    await qless.put("q", "K", jid="tied", depends=["away"])
    await qless.put("q", "K", jid="free")
    await qless.put("q", "K", jid="both", depends=["free"], delay=3600)
    await qless.put("q", "K", jid="runs", priority=9)
    (job,) = await qless.pop("q")
    moved = await move.to_ours()
    assert (moved.jobs, moved.dependent, moved.left.total()) == (0, 0, 3)
    assert sorted(moved.left.values()) == [1, 2]
    assert any("another queue" in reason for reason in moved.left)
    assert any("can't wait for both" in reason for reason in moved.left)
    assert {jid for jid in ("tied", "free", "both") if await qless.get(jid)} == {"tied", "free", "both"}
    assert await qless.complete(job) == "complete"
    assert (await ours.counts()).waiting == 0


async def test_a_job_whose_worker_is_gone_moves_too(
    qless: AsyncQlessClient, ours: AsyncQueue, move: AsyncQlessMove
) -> None:
    await qless.set_config("grace-period", 0)
    await qless.set_config("heartbeat", -10)
    await qless.put("q", "K", jid="lost")
    await qless.pop("q")
    assert (await move.to_ours()).jobs == 1
    assert [job.id for job in await ours.jobs(JobState.WAITING)] == ["lost"]


async def test_a_move_that_was_interrupted_is_finished_by_the_next(
    qless: AsyncQlessClient, ours: AsyncQueue, server: redis.Redis, server_url: str
) -> None:
    jids = {await qless.put("q", "K", number) for number in range(COUNT)}
    async with AsyncQlessMove("q", url=server_url) as first:
        moving = asyncio.ensure_future(first.to_ours())
        await wait_until(lambda: server.exists(ours.keys.stream), "the first jobs to have moved")
        moving.cancel()
        await asyncio.wait([moving])
    async with AsyncQlessMove("q", url=server_url) as second:
        await second.to_ours()
    assert sorted(job.id for job in await ours.jobs(JobState.WAITING, limit=None)) == sorted(jids)
    assert (await qless.counts("q")).waiting == 0


async def test_workers_of_both_run_while_a_queue_moves(
    qless: AsyncQlessClient, ours: AsyncQueue, move: AsyncQlessMove, server_url: str
) -> None:
    ran: Counter[str] = Counter()
    jids = [await qless.put("q", "K", number, delay=number % 3 / 10) for number in range(COUNT)]

    async def work(job: Any) -> None:
        ran[job.id] += 1

    async def their_work() -> None:
        while True:
            for job in await qless.pop("q", 5):
                ran[job.jid] += 1
                await qless.complete(job)
            await asyncio.sleep(0)

    theirs = asyncio.ensure_future(their_work())
    async with working(ours, work, server_url):
        await move.to_ours()
        await wait_until(lambda: len(ran) == COUNT, "all jobs to run")
    theirs.cancel()
    await asyncio.wait([theirs])
    assert ran == Counter(jids)


async def test_an_empty_queue_moves_nothing_and_stays_paused(qless: AsyncQlessClient, move: AsyncQlessMove) -> None:
    await qless.pause("q")
    moved = await move.to_ours()
    assert (moved.jobs, moved.delayed, moved.dependent, moved.schedules, moved.left.total()) == (0, 0, 0, 0, 0)
    assert (await qless.counts("q")).paused
