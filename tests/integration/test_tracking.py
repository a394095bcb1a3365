"""Tracked jobs stay past retention, with their histories; both faces, real workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import JobFailedError, JobNotFoundError, StateError
from orchestration_queue.options import Backoff, JobOptions, Retention
from orchestration_queue.protocol.operations import control
from orchestration_queue.worker import AsyncActiveJob
from tests.faces import Face
from tests.integration.test_cli import Oq
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)
NOT_KEPT = Retention(count=0)
RETRIED = JobOptions(
    attempts=2, backoff=Backoff(type="fixed", delay=0), remove_on_complete=NOT_KEPT, remove_on_fail=NOT_KEPT
)


@pytest.fixture
async def queue(face: Face, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with face.queue(queue_name) as queue:
        yield queue


async def fail_first(job: AsyncActiveJob) -> str:
    if job.attempt == 1 or job.name == "lost":
        raise ValueError(f"attempt {job.attempt}")
    return "done"


async def test_a_tracked_job_stays_with_its_history_until_it_is_untracked(
    queue: AsyncQueue, face: Face, raw: Any
) -> None:
    job, lost, plain = [await queue.add(name, options=RETRIED) for name in ("kept", "lost", "plain")]
    await job.track()
    await lost.track()
    await job.track()
    async with working(queue, fail_first, face.url) as worker:
        assert await job.wait(SOON) == "done"
        with pytest.raises(JobFailedError):
            await lost.wait(SOON)
        await wait_until(lambda: not raw.exists(queue.keys.job(plain.id)), "the job that is not tracked to go")
    assert (await queue.counts()).completed == 0
    kept = await queue.get(job.id)
    assert kept.is_tracked
    assert [(entry.event, entry.attempt) for entry in kept.history] == [("failed", 1), ("completed", 2)]
    assert kept.history[-1].worker == worker.id
    assert [each.id for each in await queue.tracked()] == [job.id, lost.id]
    await job.untrack()
    await lost.untrack()
    assert await queue.tracked() == []
    assert await queue.find(job.id) is None, "its retention was over"
    with pytest.raises(JobNotFoundError):
        await job.untrack()
    assert not raw.exists(queue.keys.tracked)


async def test_bounds_of_retention_pass_over_tracked_jobs(queue: AsyncQueue, face: Face) -> None:
    options = JobOptions(remove_on_complete=Retention(count=2))
    jobs = [await queue.add("n", options=options) for _ in range(6)]
    await jobs[0].track()
    await jobs[5].track()

    async def done(_: AsyncActiveJob) -> None: ...

    async with working(queue, done, face.url, concurrency=1):
        await jobs[5].wait(SOON)
    there = [job.id for job in jobs if await queue.find(job.id) is not None]
    assert there == [jobs[0].id, jobs[4].id, jobs[5].id]
    await jobs[5].untrack()
    assert await queue.find(jobs[5].id) is not None, "its own retention keeps it"


async def test_a_removed_job_is_forgotten(queue: AsyncQueue, raw: Any) -> None:
    first, second = await queue.add("n"), await queue.add("n")
    await first.track()
    await second.track()
    await first.remove()
    assert [job.id for job in await queue.tracked()] == [second.id]
    assert raw.zrange(queue.keys.tracked, 0, -1) == [second.id]
    await queue.obliterate()
    assert not raw.keys(f"{queue.keys.base}*")


async def test_the_bound_counts_jobs_that_are_there(queue: AsyncQueue, raw: Any) -> None:
    raw.zadd(queue.keys.tracked, {f"gone-{number}": number for number in range(control.MOST_TRACKED)})
    job, other = await queue.add("n"), await queue.add("n")
    await job.track()
    assert raw.zcard(queue.keys.tracked) == 1
    for number in range(control.MOST_TRACKED - 1):
        raw.zadd(queue.keys.tracked, {f"there-{number}": number})
        raw.hset(queue.keys.job(f"there-{number}"), "state", "waiting")
    with pytest.raises(StateError, match="can't be tracked, because 1,000 others are"):
        await other.track()
    assert not (await other.refresh()).is_tracked


async def test_a_set_of_another_type_stops_no_job(queue: AsyncQueue, face: Face, raw: Any) -> None:
    raw.set(queue.keys.tracked, "junk")
    job = await queue.add("n", options=JobOptions(remove_on_complete=NOT_KEPT))

    async def done(_: AsyncActiveJob) -> None: ...

    async with working(queue, done, face.url):
        await wait_until(lambda: not raw.exists(queue.keys.job(job.id)), "the job to be done and go")


async def test_oq_tracks(server_url: str, queue: AsyncQueue) -> None:
    oq = Oq(server_url)
    job = await queue.add("n")
    assert (await asyncio.to_thread(oq.json, "job", "track", queue.name, job.id))["tracked"] is True
    (row,) = await asyncio.to_thread(oq.json, "job", "tracked", queue.name)
    assert (row["id"], row["state"]) == (job.id, "waiting")
    assert (await asyncio.to_thread(oq.json, "job", "show", queue.name, job.id))["tracked"] is True
    assert (await asyncio.to_thread(oq.json, "job", "untrack", queue.name, job.id))["tracked"] is False
    assert await asyncio.to_thread(oq.json, "job", "tracked", queue.name) == []
