"""Jobs that clients take without being workers: done, failed, put back, lost and found; both faces, a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, AsyncTakenJob, NewJob
from orchestration_queue.errors import (
    InvalidOptionError,
    JobFailedError,
    JobNotFoundError,
    LeaseLostError,
    PayloadError,
    UsageError,
)
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import Backoff, JobOptions, RateLimit, Retention
from orchestration_queue.protocol.keys import TAKER
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob
from tests.faces import Face
from tests.workers import working

SOON = timedelta(seconds=60)
TWICE = JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=0))


@pytest.fixture
async def queue(face: Face, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with face.queue(queue_name) as queue:
        yield queue


async def take_one(queue: AsyncQueue, **options: Any) -> AsyncTakenJob:
    (taken,) = await queue.take(wait=SOON, **options)
    return taken


def forget(raw: Any, queue: AsyncQueue, job_id: str) -> None:
    """Age an active job's last renewal by ten minutes."""
    for entry in raw.xpending_range(queue.keys.stream, "workers", "-", "+", 100):
        ((_, fields),) = raw.xrange(queue.keys.stream, entry["message_id"], entry["message_id"])
        if fields["jobId"] == job_id:
            raw.xclaim(queue.keys.stream, "workers", "lost", 0, [entry["message_id"]], idle=600_000)
    raw.hset(queue.keys.job(job_id), "lastActive", 1)


async def test_jobs_are_taken_in_order_and_completed(queue: AsyncQueue, raw: Any) -> None:
    assert await queue.take(3) == []
    jobs = await queue.add_bulk([NewJob(f"n{number}", {"n": number}) for number in range(5)])
    first = await queue.take(3)
    assert [(taken.id, taken.name, taken.data, taken.attempt) for taken in first] == [
        (job.id, f"n{number}", {"n": number}, 1) for number, job in enumerate(jobs[:3])
    ]
    assert (await queue.counts()).active == 3
    rest = await queue.take(100)
    for taken in (*first, *rest):
        await taken.complete({"by": taken.id})
    assert [await job.wait(SOON) for job in jobs] == [{"by": job.id} for job in jobs]
    assert raw.xpending(queue.keys.stream, "workers")["pending"] == 0
    assert {consumer["name"] for consumer in raw.xinfo_consumers(queue.keys.stream, "workers")} == {TAKER}


async def test_a_block_completes_its_job(queue: AsyncQueue) -> None:
    job, other = await queue.add("n", options=JobOptions(remove_on_complete=Retention(count=0))), await queue.add("n")
    async with await take_one(queue) as taken:
        await taken.job.log("half way")
    assert await queue.find(job.id) is None, "the job's own retention holds"
    async with await take_one(queue) as taken:
        await taken.complete("mine")
    assert await other.wait(SOON) == "mine"


async def test_an_exception_fails_the_attempt_as_on_a_worker(queue: AsyncQueue) -> None:
    job = await queue.add("n", options=TWICE)
    with pytest.raises(ValueError, match="no good"):
        async with await take_one(queue):
            raise ValueError("no good")
    async with await take_one(queue) as again:
        assert (again.id, again.attempt) == (job.id, 2)
    record = await job.refresh()
    assert record.state is JobState.COMPLETED
    (entry,) = record.history
    assert (entry.worker, entry.reason, entry.kind) == (TAKER, "ValueError: no good", "ValueError")
    assert "raise ValueError" in (entry.traceback or "")


async def test_a_failure_for_good_leaves_a_dead_letter(queue: AsyncQueue, face: Face, raw: Any) -> None:
    raw.hset(queue.keys.meta, "deadLetterQueueName", f"{queue.name}-dead")
    job = await queue.add("n", {"to": "ada"})
    taken = await take_one(queue)
    assert await taken.fail("mailbox full") is False
    with pytest.raises(JobFailedError, match="mailbox full"):
        await job.wait(SOON)
    (letter,) = await queue.dead_letters.list()
    assert (letter.data, letter.failed_reason) == ({"to": "ada"}, "mailbox full")


async def test_a_failure_with_attempts_left_wakes_a_worker_for_the_next(queue: AsyncQueue, face: Face) -> None:
    async def work(job: AsyncActiveJob) -> int:
        return job.attempt

    job = await queue.add("n", options=TWICE)
    assert await (await take_one(queue)).fail(RuntimeError("once")) is True
    async with working(queue, work, face.url):
        assert await job.wait(SOON) == 2


async def test_a_retry_runs_even_without_attempts_left_and_a_release_costs_none(queue: AsyncQueue) -> None:
    job = await queue.add("n")
    await (await take_one(queue)).retry(reason="not now")
    second = await take_one(queue)
    assert second.attempt == 2
    await second.release()
    third = await take_one(queue)
    assert (third.id, third.attempt) == (job.id, 2)
    await third.release(3600)
    assert (await job.refresh()).state is JobState.DELAYED
    assert await queue.take() == []


async def test_a_block_that_is_interrupted_gives_its_job_back(queue: AsyncQueue) -> None:
    class Interrupted(BaseException):
        """Like a Ctrl-C, which would end the tests."""

    job = await queue.add("n")
    with pytest.raises(Interrupted):
        async with await take_one(queue):
            raise Interrupted
    again = await take_one(queue)
    assert (again.id, again.attempt) == (job.id, 1)


async def test_what_is_finished_cannot_be_finished_again(queue: AsyncQueue) -> None:
    await queue.add("n")
    taken = await take_one(queue)
    for wrong in ("", None, 5):
        with pytest.raises(UsageError, match="`error` must be"):
            await taken.fail(wrong)  # type: ignore[arg-type]  # what is tested
    for delay in (-1, "x"):
        with pytest.raises(UsageError, match="`delay`"):
            await taken.retry(delay)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="`delay`"):
            await taken.release(delay)  # type: ignore[arg-type]
    with pytest.raises(PayloadError):
        await taken.complete(object())
    await taken.complete()
    for act in (taken.complete, taken.retry, taken.release, taken.heartbeat):
        with pytest.raises(UsageError, match="is finished"):
            await act()
    with pytest.raises(UsageError, match="is finished"):
        await taken.fail("late")


async def test_bounds_are_refused(queue: AsyncQueue) -> None:
    for count in (0, 101, True, "1"):
        with pytest.raises(InvalidOptionError, match="`count`"):
            await queue.take(count)  # type: ignore[arg-type]
    for lease in (0.5, timedelta(days=2)):
        with pytest.raises(InvalidOptionError, match="`lease`"):
            await queue.take(lease=lease)


async def test_the_queue_limits_bind_takers(queue: AsyncQueue) -> None:
    await queue.add_bulk([NewJob("n") for _ in range(4)])
    await queue.pause()
    assert await queue.take(4) == []
    await queue.resume()
    await queue.set_global_concurrency(2)
    both = await queue.take(4)
    assert len(both) == 2
    for taken in both:
        await taken.complete()
    await queue.set_global_concurrency(None)
    await queue.set_global_rate_limit(RateLimit(max=1, duration=3600))
    assert len(await queue.take(4)) == 1
    counts = await queue.counts()
    assert (counts.active, counts.delayed) == (1, 1)


async def test_a_lost_lease_is_said_and_nothing_is_changed(queue: AsyncQueue, raw: Any) -> None:
    job = await queue.add("n")
    taken = await take_one(queue)
    forget(raw, queue, taken.id)
    again = await take_one(queue)  # no worker is registered, so a taker finds it
    assert (again.id, again.attempt) == (job.id, 1)
    with pytest.raises(LeaseLostError):
        await taken.complete("stale")
    assert (await job.refresh()).state is JobState.ACTIVE
    other = await queue.add("n")
    late = await take_one(queue)
    raw.hset(queue.keys.job(other.id), "processedOn", 1)
    with pytest.raises(LeaseLostError):
        await late.heartbeat()
    await again.complete("fresh")
    assert await job.wait(SOON) == "fresh"


async def test_a_registered_worker_is_left_to_find_forgotten_jobs(queue: AsyncQueue, face: Face, raw: Any) -> None:
    await queue.add("n")
    taken = await take_one(queue)
    forget(raw, queue, taken.id)
    raw.set(queue.keys.worker("lost"), "{}", px=60_000)
    assert await queue.take() == []
    raw.delete(queue.keys.worker("lost"))
    assert [found.id for found in await queue.take()] == [taken.id]


async def test_a_lease_lasts_as_long_as_was_asked_and_is_renewed(queue: AsyncQueue, raw: Any) -> None:
    job = await queue.add("n")
    taken = await take_one(queue, lease=3600)
    seconds, _ = raw.time()
    ends = int(raw.hget(queue.keys.job(job.id), "lastActive")) / 1000
    assert 3500 < ends - seconds < 3700
    for entry in raw.xpending_range(queue.keys.stream, "workers", "-", "+", 10):
        raw.xclaim(queue.keys.stream, "workers", TAKER, 0, [entry["message_id"]], idle=600_000)
    assert await queue.take() == [], "it is not taken over while the lease lasts"
    raw.hset(queue.keys.job(job.id), "lastActive", 1)
    assert await taken.heartbeat() is True
    assert int(raw.hget(queue.keys.job(job.id), "lastActive")) / 1000 - seconds > 3500
    await job.cancel()
    assert await taken.heartbeat() is False
    await taken.fail("cancelled")


async def test_another_process_goes_on_with_a_taken_job(queue: AsyncQueue, face: Face, raw: Any) -> None:
    jobs = await queue.add_bulk([NewJob("n", options=TWICE), NewJob("n", options=JobOptions(lifo=True))])
    held = {taken.id: taken.token for taken in await queue.take(2)}
    async with face.queue(queue.name) as other:
        first, last = [await other.taken(job.id, held[job.id], lease=60) for job in jobs]
        assert await first.heartbeat() is True
        assert await first.fail("bad") is True
        await last.complete(5)
        for job in jobs:
            with pytest.raises(LeaseLostError):
                await other.taken(job.id, held[job.id])
        again = await take_one(other)
        assert (again.id, again.attempt) == (jobs[0].id, 2)
        with pytest.raises(LeaseLostError):
            await other.taken(again.id, held[again.id])
        await (await other.taken(again.id, again.token)).complete(6)
        assert [await job.wait(SOON) for job in jobs] == [6, 5]
        assert raw.xpending(queue.keys.stream, "workers")["pending"] == 0
        with pytest.raises(JobNotFoundError):
            await other.taken("nope", again.token)


async def test_a_wait_ends_with_the_first_job(queue: AsyncQueue, face: Face) -> None:
    async with face.queue(queue.name) as other:
        taking = asyncio.ensure_future(queue.take(5, wait=SOON))
        await asyncio.sleep(0.1)
        job = await other.add("n")
        (taken,) = await taking
        assert taken.id == job.id
        waiting = asyncio.ensure_future(queue.take(5, wait=SOON))
        await taken.retry(0.3)
        (again,) = await waiting
        assert (again.id, again.attempt) == (job.id, 2)
        await again.complete()


async def test_a_taker_runs_a_flow_as_workers_do(queue: AsyncQueue, face: Face) -> None:
    async with face.flows() as producer:
        flow = await producer.submit(Dag("two", [Node("first"), Node("second", deps=("first",))], queue.name))
        for expected in ("first", "second"):
            async with await take_one(queue) as taken:
                assert taken.name == expected
                await taken.complete(expected.upper())
        async with working(queue, lambda _: None, face.url):
            assert await flow.wait(SOON) == {"first": "FIRST", "second": "SECOND"}


async def test_a_job_that_cannot_run_fails_and_is_not_given_out(queue: AsyncQueue, raw: Any) -> None:
    job = await queue.add("n")
    raw.hset(queue.keys.job(job.id), "attemptsMade", "many")
    assert await queue.take() == []
    with pytest.raises(JobFailedError, match="attemptsMade"):
        await job.wait(SOON)
