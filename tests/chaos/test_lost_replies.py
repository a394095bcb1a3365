"""Replies to a worker are lost again and again: what they reported was done, and must not be done twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest
import redis

from orchestration_queue.client import AsyncJob, AsyncQueue, NewJob
from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.options import Backoff, JobOptions, Ordering, Retention
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.worker import AsyncActiveJob
from tests.chaos.books import counted, is_quiet, mistakes
from tests.chaos.saboteur import Saboteur
from tests.chaos.workers import BUSY_S
from tests.waiting import wait_until
from tests.workers import working

pytestmark = pytest.mark.chaos

EVERY = 3
"""Of this number of requests, one reply is lost."""
STREAM = {
    "plain": JobOptions(),
    "removed": JobOptions(remove_on_complete=Retention(count=0)),
    "in turn": JobOptions(ordering=Ordering(key="customer")),
    "grouped": JobOptions(ordering=Ordering(key="customer", concurrency=3)),
}
LISTED = {
    "prioritized": JobOptions(priority=3),
    "newest first": JobOptions(lifo=True),
}


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("kind", STREAM)
async def test_jobs_of_the_stream_run_exactly_once(
    queue: AsyncQueue, raw: redis.Redis, saboteur: Saboteur, kind: str, concurrency: int
) -> None:
    runs: Counter[int] = Counter()

    async def work(job: AsyncActiveJob) -> int:
        runs[job.data] += 1
        return int(job.data)

    jobs = 200 if concurrency == 8 and STREAM[kind].ordering is None else 40
    await queue.add_bulk([NewJob("work", number, STREAM[kind]) for number in range(jobs)])
    saboteur.lose_replies("oq1_exchange", every=EVERY)
    async with working(queue, work, saboteur.url, concurrency=concurrency, lease=timedelta(minutes=1)):
        await wait_until(lambda: counted(raw, queue.keys.metrics_completed) >= jobs, "all jobs to be told")
        saboteur.relent()
    assert saboteur.lost >= 5
    assert runs == Counter(range(jobs))
    assert mistakes(raw, queue.keys, completed=jobs) == {}
    kept = [raw.hgetall(key) for key in raw.scan_iter(queue.keys.job("*"))]
    assert len(kept) == (0 if kind == "removed" else jobs)
    assert all(job["returnvalue"] == job["data"] and job["state"] == "completed" for job in kept)


@pytest.mark.parametrize("concurrency", [1, 8])
async def test_each_attempt_is_made_and_counted_once_and_each_failure_leaves_one_letter(
    queue: AsyncQueue, raw: redis.Redis, saboteur: Saboteur, concurrency: int
) -> None:
    runs: Counter[tuple[int, int]] = Counter()

    async def work(job: AsyncActiveJob) -> int:
        runs[job.data, job.attempt] += 1
        if job.data % 3 == 0:
            raise UnrecoverableError("a bad number")
        if job.attempt < 3:
            raise ValueError("not yet")
        return int(job.data)

    jobs = 24 if concurrency == 1 else 96
    options = JobOptions(attempts=3, backoff=Backoff(type="fixed", delay=timedelta(milliseconds=20)))
    await queue.add_bulk([NewJob("work", number, options) for number in range(jobs)])
    saboteur.lose_replies("oq1_exchange", every=EVERY)
    letters = QueueKeys(f"{queue.name}-dead")
    async with working(
        queue,
        work,
        saboteur.url,
        concurrency=concurrency,
        lease=timedelta(minutes=1),
        dead_letter_queue=letters.queue,
    ):
        await wait_until(lambda: is_quiet(raw, queue.keys, jobs=jobs), "all jobs to be told")
        saboteur.relent()
    assert saboteur.lost >= 5
    bad = [number for number in range(jobs) if number % 3 == 0]
    good = [number for number in range(jobs) if number % 3]
    assert runs == Counter([*((n, 1) for n in bad), *((n, attempt) for n in good for attempt in (1, 2, 3))])
    assert mistakes(raw, queue.keys, completed=len(good), failed=len(bad)) == {}
    records = [raw.hgetall(key) for key in raw.scan_iter(queue.keys.job("*"))]
    assert {int(job["data"]): int(job["attemptsMade"]) for job in records} == {
        **dict.fromkeys(bad, 1),
        **dict.fromkeys(good, 2),
    }
    found = [json.loads(raw.hget(key, "data") or "") for key in raw.scan_iter(letters.job("*"))]
    assert sorted(letter["data"] for letter in found) == bad


async def test_jobs_that_came_with_a_lost_answer_to_a_wait_are_found_at_once(
    queue: AsyncQueue, raw: redis.Redis, saboteur: Saboteur, recovered: Callable[[float, float], None]
) -> None:
    runs: Counter[int] = Counter()

    async def work(job: AsyncActiveJob) -> int:
        runs[job.data] += 1
        return int(job.data)

    longest = 0.0
    saboteur.lose_replies("XREADGROUP", every=2)
    async with working(queue, work, saboteur.url, lease=timedelta(minutes=1)) as worker:
        for number in range(12):
            await wait_until(lambda: worker.is_listening, "the worker to wait for jobs")
            added = time.monotonic()
            assert await (await queue.add("work", number)).wait(BUSY_S) == number
            longest = max(longest, time.monotonic() - added)
        saboteur.relent()
    assert saboteur.lost >= 3
    assert runs == Counter(range(12))
    assert mistakes(raw, queue.keys, completed=12) == {}
    recovered(longest, BUSY_S)  # and not after their lease


async def test_the_lease_of_a_job_whose_outcome_is_on_its_way_is_renewed(
    queue: AsyncQueue, raw: redis.Redis, saboteur: Saboteur
) -> None:
    over = asyncio.Event()

    async def work(_: AsyncActiveJob) -> None:
        await over.wait()

    def heard(job: AsyncJob) -> int:
        return int(raw.hget(queue.keys.job(job.id), "lastActive") or 0)

    lease = timedelta(seconds=2)
    async with working(queue, work, saboteur.url, lease=lease, stalled_interval=timedelta(hours=1)) as worker:
        job = await queue.add("work")
        await wait_until(lambda: worker.running, "the job to run")
        saboteur.hold_requests("oq1_exchange")
        over.set()
        await wait_until(lambda: saboteur.held and not worker.running, "its outcome to be on its way")
        before = heard(job)
        await wait_until(lambda: heard(job) > before, "a renewal")
        worker.kill()


async def test_a_worker_that_leaves_while_replies_are_lost_leaves_every_job_to_be_run_once(
    queue: AsyncQueue, raw: redis.Redis, saboteur: Saboteur
) -> None:
    runs: Counter[int] = Counter()

    async def work(job: AsyncActiveJob) -> int:
        runs[job.data] += 1
        return int(job.data)

    jobs = 60
    options = JobOptions(ordering=Ordering(key="customer", concurrency=4))
    minute = timedelta(minutes=1)
    await queue.add_bulk([NewJob("work", n, options if n % 2 else JobOptions()) for n in range(jobs)])
    saboteur.lose_replies("oq1_exchange", every=2)
    while sum(runs.values()) < jobs * 2 / 3:
        before = sum(runs.values())
        async with working(queue, work, saboteur.url, concurrency=8, lease=minute, drain=minute):
            await wait_until(lambda: sum(runs.values()) > before, "the worker to work")  # noqa: B023
        assert raw.xpending(queue.keys.stream, "workers")["pending"] == 0
    saboteur.relent()
    async with working(queue, work, saboteur.url, concurrency=8, lease=timedelta(minutes=1)):
        await wait_until(lambda: counted(raw, queue.keys.metrics_completed) >= jobs, "all jobs to be told")
    assert runs == Counter(range(jobs))
    assert mistakes(raw, queue.keys, completed=jobs) == {}


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("kind", LISTED)
async def test_list_jobs_whose_start_got_lost_run_at_once_and_are_not_taken_over(
    queue: AsyncQueue, raw: redis.Redis, saboteur: Saboteur, kind: str, concurrency: int
) -> None:
    runs: Counter[int] = Counter()

    async def work(job: AsyncActiveJob) -> int:
        runs[job.data] += 1
        return int(job.data)

    jobs = 8 if concurrency == 1 else 64
    await queue.add_bulk([NewJob("work", number, LISTED[kind]) for number in range(jobs)])
    saboteur.lose_replies("oq1_exchange", every=EVERY)
    async with working(queue, work, saboteur.url, concurrency=concurrency, lease=timedelta(minutes=1)):
        await wait_until(lambda: counted(raw, queue.keys.metrics_completed) >= jobs, "all jobs to be told")
        saboteur.relent()
    assert saboteur.lost >= 3
    assert runs == Counter(range(jobs))
    assert mistakes(raw, queue.keys, completed=jobs) == {}
    assert not any(raw.hexists(key, "stalledCount") for key in raw.scan_iter(queue.keys.job("*")))
