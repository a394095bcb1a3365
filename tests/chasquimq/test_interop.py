"""The original, unmodified, beside ours on one queue. What it needs Redis 8.6 for, a proxy supplies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, BackoffSpec, ChasquiJob, NewChasquiJob
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq.original import chasquimq, their_worker
from tests.chasquimq.redis86 import redis86
from tests.chasquimq.working import is_settled, working
from tests.waiting import wait_until


@pytest.fixture
def proxy(server_url: str) -> Iterator[str]:
    """The server's URL for the original."""
    with redis86(server_url.removeprefix("unix://")) as url:
        yield url


@pytest.fixture
async def theirs(server: Any, proxy: str, queue_name: str) -> AsyncIterator[Any]:
    """The original's client of the queue."""
    client = chasquimq.Queue(queue_name, redis_url=proxy)
    yield client
    await client.close()


async def flaky(job: Any) -> Any:
    """Fails as its data say, in the words of both."""
    if job.name == "hopeless":
        raise UnrecoverableError("never") if isinstance(job, ChasquiJob) else chasquimq.UnrecoverableError("never")
    if job.attempt < job.data:
        raise RuntimeError("boom")
    return {"attempt": job.attempt}


async def settled(queue: AsyncChasquiQueue, server: Any) -> None:
    await wait_until(lambda: is_settled(server, queue.keys), "all jobs to be settled")


async def test_our_worker_runs_their_jobs(
    theirs: Any, queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys
) -> None:
    plain = await theirs.add("plain", 0)
    late = await theirs.add("late", 0, delay_ms=100)
    retried = await theirs.add("retried", 2, attempts=3, backoff=10)
    spent = await theirs.add("spent", 9, attempts=2, backoff=chasquimq.BackoffSpec.exponential(5, jitter_ms=0))
    hopeless = await theirs.add_unique("hopeless", 0, job_id="one")
    bulk = await theirs.add_bulk([{"name": "bulk", "data": 0} for _ in range(20)])
    async with working(queue.name, flaky, server_url, store_results=True):
        await settled(queue, server)
    done = [plain.id, late.id, *(job.id for job in bulk)]
    assert await theirs.get_job_result_bulk([*done, retried.id]) == [{"attempt": 0}] * len(done) + [{"attempt": 2}]
    letters = {letter["reason"]: letter for letter in await theirs.peek_dlq()}
    assert {letter.reason: letter.job_id for letter in await queue.dead_letters()} == {
        "retries_exhausted": spent.id,
        "unrecoverable": hopeless.id,
    }
    assert letters["retries_exhausted"]["name"] == "spent"
    assert letters["retries_exhausted"]["detail"] == "boom"
    assert await theirs.replay_dlq() == 2
    assert Counter(job.name for job in await queue.list_jobs()) == {"spent": 1, "hopeless": 1}


async def test_their_worker_runs_our_jobs(
    proxy: str, theirs: Any, queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys
) -> None:
    plain = await queue.add("plain", 0)
    late = await queue.add("late", 0, delay=0.1)
    mine = await queue.add("late", 0, delay=0.1, job_id="mine")
    retried = await queue.add("retried", 2, attempts=3, backoff=0.01)
    spent = await queue.add("spent", 9, attempts=2, backoff=BackoffSpec.exponential(5, jitter_ms=0))
    bulk = await queue.add_bulk([NewChasquiJob("bulk", 0)] * 20)
    hopeless = await queue.add("hopeless", 0)
    async with their_worker(queue.name, flaky, proxy, store_results=True):
        await settled(queue, server)
    done = [plain.id, late.id, mine.id, *(job.id for job in bulk)]
    assert await queue.find_results([*done, retried.id]) == [{"attempt": 0}] * len(done) + [{"attempt": 2}]
    assert {letter.reason: letter.job_id for letter in await queue.dead_letters()} == {
        "retries_exhausted": spent.id,
        "unrecoverable": hopeless.id,
    }
    assert await queue.replay_dead_letters() == 2
    assert not server.exists(keys.index(late.id), keys.index("mine"))


async def test_each_cancels_what_the_other_delayed(theirs: Any, queue: AsyncChasquiQueue) -> None:
    await theirs.add("a", 1, delay_ms=60_000, job_id="theirs")
    await queue.add("a", 1, delay=60, job_id="ours")
    minted = await queue.add("a", 1, delay=60)
    assert not (await queue.add("a", 1, delay=60, job_id="theirs")).is_new
    assert await queue.cancel("theirs")
    assert await theirs.cancel_delayed("ours")
    assert await theirs.cancel_delayed(minted.id)
    assert (await queue.counts()).delayed == 0


async def test_each_reads_the_others_schedules(theirs: Any, queue: AsyncChasquiQueue) -> None:
    cron = chasquimq.RepeatPattern.cron("0 2 * * *", tz="Europe/Lisbon")
    await theirs.upsert_repeatable_job("nightly", {"k": 1}, repeat=cron, limit=5)
    await queue.put_schedule("tick", {"k": 2}, every=60, missed_fires="fire_all", max_catchup=3)
    ours = {schedule.key: schedule for schedule in await queue.schedules()}
    found = {meta.key: meta for meta in await theirs.get_repeatable_jobs()}
    assert set(ours) == set(found) == {"nightly::cron:0 2 * * *:Europe/Lisbon", "tick::every:60000"}
    for key, schedule in ours.items():
        assert round(schedule.next_at.timestamp() * 1000) == found[key].next_fire_ms
        assert schedule.spec is not None
        assert (schedule.spec.job_name, schedule.spec.limit) == (found[key].job_name, found[key].limit)
    assert await theirs.remove_repeatable_by_key("tick::every:60000")
    assert await queue.remove_schedule("nightly::cron:0 2 * * *:Europe/Lisbon")


async def test_schedulers_of_both_kinds_fire_once(
    proxy: str, theirs: Any, queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys
) -> None:
    fired: list[str] = []

    async def note(job: Any) -> None:
        fired.append(job.id)

    every = chasquimq.RepeatPattern.every(100)
    policy = chasquimq.MissedFiresPolicy.fire_all(100)
    await theirs.upsert_repeatable_job("tick", 1, repeat=every, limit=15, missed_fires=policy)
    async with their_worker(queue.name, note, proxy), working(queue.name, note, server_url):
        while server.exists(keys.repeat):
            server.delete(keys.scheduler_lock)  # the first to ask leads next
            await asyncio.sleep(0.03)
        await settled(queue, server)
    assert len(fired) == len(set(fired)) == 15


async def test_a_fleet_of_both_runs_each_job_once(
    proxy: str, theirs: Any, queue: AsyncChasquiQueue, server: Any, server_url: str
) -> None:
    ran: Counter[str] = Counter()

    async def note(job: Any) -> None:
        ran[job.id] += 1
        if job.attempt == 0 and job.data % 10 == 0:
            raise RuntimeError("once")

    jobs = await queue.add_bulk([NewChasquiJob("ours", n, backoff=0.01) for n in range(300)])
    added = await theirs.add_bulk([{"name": "theirs", "data": 1 + n % 9} for n in range(300)])
    async with (
        their_worker(queue.name, note, proxy, concurrency=10),
        working(queue.name, note, server_url, concurrency=10),
    ):
        await settled(queue, server)
    assert ran == Counter({job.id: 1 for job in added} | {job.id: 2 if job.data % 10 == 0 else 1 for job in jobs})
    assert (await queue.counts()).dead_letters == 0


async def test_their_listener_reads_our_events(queue: AsyncChasquiQueue, server: Any, server_url: str) -> None:
    job = await queue.add("flaky", 1, attempts=2, backoff=0.01)
    async with working(queue.name, flaky, server_url):
        await settled(queue, server)
        await wait_until(lambda: len(found(server, queue.keys)) >= 6, "all events")
    listener = chasquimq.QueueEvents(queue.name, redis_url=server_url, last_event_id="0", block_ms=50)
    names: list[str] = []
    async with asyncio.timeout(60):
        async for event in listener:
            if event.job_id == job.id:
                names.append(event.name)
            if event.name == "completed":
                assert (event.job_name, event.fields["attempt"]) == ("flaky", 2)
                break
    await listener.close()
    assert [name for name in names if name != "waiting"] == [
        "active",
        "failed",
        "retry-scheduled",
        "active",
        "completed",
    ]


def found(server: Any, keys: ChasquiKeys) -> list[Any]:
    """The events of the queue."""
    return list(server.xrange(keys.events))
