"""A job is taken off a long list without a search through it, and what is left there runs nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, Job, NewJob
from orchestration_queue.options import JobOptions
from tests.waiting import wait_until
from tests.workers import working

JOBS = 42_000
MIDDLE = JOBS // 2
FILL = """
for n = 1, tonumber(ARGV[1]) do
  redis.call("HSET", KEYS[2] .. n, "id", n, "name", "work", "data", "1", "opts", "{}", "state", "waiting",
    "timestamp", n, ARGV[2], ARGV[3])
  redis.call(ARGV[4], KEYS[1], n)
end
"""


@pytest.fixture
async def queue(server_url: str, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


def fill(raw: redis.Redis, queue: AsyncQueue, list_: str, *field: str, push: str = "RPUSH") -> str:
    """Write waiting jobs 1 to 42,000 into a list; returns its key."""
    key = queue.keys.named(list_)
    raw.set(queue.keys.id, JOBS)
    raw.eval(FILL, 2, key, queue.keys.job(""), str(JOBS), *field, push)
    return key


def calls(raw: redis.Redis, command: str) -> int:
    stats = raw.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


async def test_a_cancelled_job_deep_in_the_lifo_list_leaves_a_tombstone_that_runs_nothing(
    queue: AsyncQueue, raw: redis.Redis, server_url: str
) -> None:
    key = fill(raw, queue, "lifo", "lifo", "1")
    raw.config_resetstat()
    await queue.cancel(str(MIDDLE))
    assert await queue.remove(str(MIDDLE + 1))
    assert (calls(raw, "lpos"), calls(raw, "lrem")) == (4, 0)  # both ends of each, and no search of everything
    assert raw.lrange(key, MIDDLE - 2, MIDDLE + 1) == [str(MIDDLE - 1), "{removed}0", "{removed}0", str(MIDDLE + 2)]
    raw.ltrim(key, MIDDLE - 5, MIDDLE + 4)
    assert {job.id for job in await queue.jobs("waiting")} == {str(MIDDLE + n) for n in (*range(-4, 0), *range(2, 6))}
    ran: list[str] = []

    async def note(job: Job) -> None:
        ran.append(job.id)

    async with working(queue, note, server_url, concurrency=1) as worker:
        await wait_until(lambda: not raw.exists(key) and not worker.running, "the list to be empty")
        fine = await queue.add("work", options=JobOptions(lifo=True))
        await fine.wait(timeout=30)
    assert ran == [str(MIDDLE + n) for n in (5, 4, 3, 2, -1, -2, -3, -4)] + [fine.id]
    assert raw.hget(queue.keys.job(str(MIDDLE)), "state") == "failed"
    assert raw.get(queue.keys.list_active) in (None, "0")
    raw.flushall()


async def test_a_job_is_removed_anywhere_from_a_list_that_is_out_of_order(queue: AsyncQueue, raw: redis.Redis) -> None:
    key = fill(raw, queue, "lifo", "lifo", "1")
    for place in (1, 3, MIDDLE, JOBS - 3, JOBS):
        job_id = str(place)
        raw.hset(queue.keys.job(job_id), "timestamp", "nan" if place == MIDDLE else str(JOBS - place))
        assert await queue.remove(job_id)
        assert (raw.lpos(key, job_id) is not None) == (place == MIDDLE)  # it is left there, and runs nothing
        assert not await queue.remove(job_id)
    assert raw.llen(key) == JOBS - 4  # the middle one and the tombstone are left
    raw.flushall()


async def test_a_job_left_in_the_middle_of_the_priority_list_runs_nothing_and_keeps_the_order(
    queue: AsyncQueue, raw: redis.Redis
) -> None:
    key = fill(raw, queue, "priority", "priority", "5", push="LPUSH")
    raw.config_resetstat()
    await queue.cancel(str(MIDDLE))
    assert calls(raw, "lpos") == 2  # both ends, and no search of everything
    assert raw.lindex(key, MIDDLE) == str(MIDDLE)
    raw.ltrim(key, MIDDLE, MIDDLE + 1)
    for priority in (7, 3, 5):
        await queue.add("work", options=JobOptions(priority=priority))
    raw.fcall("glidemq_promote", 3, *(queue.keys.named(name) for name in ("scheduled", "stream", "events")), 1 << 40)
    urgent, equal, late = (str(JOBS + 2), str(JOBS + 3), str(JOBS + 1))
    found = raw.lrange(key, 0, -1)
    assert found == [late, equal, str(MIDDLE), str(MIDDLE - 1), urgent], found
    assert [job.id for job in await queue.take(10)] == [urgent, str(MIDDLE - 1), equal, late]
    raw.flushall()


async def test_a_job_left_in_a_list_runs_once_when_it_waits_there_again(queue: AsyncQueue, raw: redis.Redis) -> None:
    key = fill(raw, queue, "priority", "priority", "5", push="LPUSH")
    job = await queue.get(str(MIDDLE))
    await job.cancel()
    await job.retry()
    raw.hdel(queue.keys.job(job.id), "revoked")
    raw.ltrim(key, MIDDLE, MIDDLE)
    assert raw.lrange(key, 0, -1) == [job.id]
    due: list[Any] = [queue.keys.named(name) for name in ("scheduled", "stream", "events")]
    (taken,) = await queue.take()  # it makes the job ready, so that it is in the list twice, and takes one of them
    assert await queue.take() == []
    assert raw.fcall("glidemq_promote", 3, *due, 1 << 40) == 0
    await taken.complete()
    assert not raw.exists(key)
    assert raw.get(queue.keys.list_active) in (None, "0")
    raw.flushall()


async def test_a_delayed_job_left_in_a_list_does_not_run_early(queue: AsyncQueue, raw: redis.Redis) -> None:
    key = fill(raw, queue, "priority", "priority", "5", push="LPUSH")
    job = await queue.get(str(MIDDLE))
    await job.cancel()
    await job.retry()
    await job.change_delay(3600)
    raw.hdel(queue.keys.job(job.id), "revoked")
    raw.ltrim(key, MIDDLE, MIDDLE)
    assert await queue.take() == []
    assert raw.hget(queue.keys.job(job.id), "state") == "delayed"
    assert not raw.exists(key)
    raw.flushall()


async def test_a_job_in_the_middle_of_the_priority_list_moves(queue: AsyncQueue, raw: redis.Redis) -> None:
    key = fill(raw, queue, "priority", "priority", "5", push="LPUSH")
    job = await queue.get(str(MIDDLE))
    moved = await job.move(f"{queue.name}-other")
    raw.ltrim(key, MIDDLE, MIDDLE)
    assert await queue.take() == []
    assert (await moved.refresh()).state == "waiting"
    raw.flushall()


async def test_prioritized_jobs_start_in_order_from_a_list_that_is_kept_short(
    queue: AsyncQueue, raw: redis.Redis
) -> None:
    async def add(jobs: int, priority: int) -> None:
        new = [NewJob("work", n, JobOptions(priority=priority)) for n in range(jobs)]
        priorities.update({job.id: priority for job in await queue.add_bulk(new)})

    async def take(count: int) -> list[int]:
        taken = await queue.take(count)
        for job in taken:
            await job.complete()
        return [priorities[job.id] for job in taken]

    priorities: dict[str, int] = {}
    await add(1500, 5)
    for _ in range(15):  # each take makes up to 100 jobs ready
        assert await take(1) == [5]
    assert raw.llen(queue.keys.priority) == 999
    assert raw.zcard(queue.keys.scheduled) == 1500 - 15 - 999
    await add(40, 7)
    await add(150, 2)
    await add(150, 4)
    ran: list[int] = []
    while some := await take(20):
        ran += some
        assert raw.llen(queue.keys.priority) <= 1000 + 300
    assert ran == [2] * 150 + [4] * 150 + [5] * 1485 + [7] * 40
    raw.flushall()
