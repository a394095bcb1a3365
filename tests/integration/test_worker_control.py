"""Controlling one worker from its own process: pause, keep away, cancel, and listening to what happens in it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import JobFailedError
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob, WorkerEvent
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def nothing(_: AsyncActiveJob) -> None:
    """A handler."""


async def test_a_paused_worker_leaves_jobs_to_others(queue: AsyncQueue, server_url: str) -> None:
    async def who(_: AsyncActiveJob) -> str:
        return "the paused one"

    async def other(_: AsyncActiveJob) -> str:
        return "the other"

    async with working(queue, who, server_url) as worker:
        await wait_until(lambda: worker.is_listening, "the worker to listen")
        worker.pause()
        await wait_until(lambda: not worker.is_listening, "the worker to stop listening")
        async with working(queue, other, server_url):
            jobs = await queue.add_bulk([NewJob("n") for _ in range(5)])
            assert [await job.wait(SOON) for job in jobs] == ["the other"] * 5
        job = await queue.add("n")
        worker.resume()
        assert await job.wait(SOON) == "the paused one"


async def test_resuming_a_worker_does_not_resume_its_queue(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, nothing, server_url) as worker:
        await queue.pause()
        await wait_until(lambda: worker.is_paused, "the worker to notice that its queue is paused")
        worker.pause()
        worker.resume()
        job = await queue.add("n")
        assert worker.is_paused
        assert (await job.refresh()).state is JobState.WAITING
        await queue.resume()
        await job.wait(SOON)


async def test_a_worker_that_keeps_away_starts_nothing_until_the_longest_wish_is_met(
    queue: AsyncQueue, server_url: str
) -> None:
    async with working(queue, nothing, server_url) as worker:
        began = time.monotonic()
        worker.keep_away(timedelta(seconds=0.4))
        worker.keep_away(timedelta(seconds=0.1))
        job = await queue.add("n")
        await job.wait(SOON)
        assert time.monotonic() - began >= 0.4


async def test_a_job_revoked_on_its_worker_stops_at_once(queue: AsyncQueue, server_url: str) -> None:
    seen: list[str] = []

    async def endless(_: AsyncActiveJob) -> None:
        seen.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("stopped")

    async with working(queue, endless, server_url, lease=timedelta(minutes=1)) as worker:
        added = await queue.add("n")
        await wait_until(lambda: seen, "the handler to begin")
        assert worker.cancel(added.id)
        assert not worker.cancel("another")
        with pytest.raises(JobFailedError, match="revoked"):
            await added.wait(SOON)
    assert seen == ["began", "stopped"]


async def test_a_second_cancellation_leaves_the_cleanup_alone(queue: AsyncQueue, server_url: str) -> None:
    seen: list[str] = []
    may_end = asyncio.Event()

    async def tidy(_: AsyncActiveJob) -> None:
        seen.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cleaning up")
            await may_end.wait()
            seen.append("cleaned up")

    async with working(queue, tidy, server_url, lease=timedelta(minutes=1)) as worker:
        added = await queue.add("n")
        await wait_until(lambda: seen, "the handler to begin")
        assert worker.cancel(added.id)
        await wait_until(lambda: "cleaning up" in seen, "the handler to clean up")
        assert worker.cancel(added.id)
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(JobFailedError, match="revoked"):
            await added.wait(SOON)
        await wait_until(lambda: seen[-1] == "cleaned up", "the cleanup to end")


async def test_a_job_revoked_before_its_handler_began_gives_its_place_back(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, nothing, server_url, concurrency=1) as worker:

        def cancel(event: WorkerEvent) -> None:
            if event.type == "active" and event.job and event.job.name == "unwanted":
                assert event.job.id
                asyncio.get_running_loop().call_soon(worker.cancel, event.job.id)

        worker.subscribe(cancel)
        unwanted = await queue.add("unwanted")
        with pytest.raises(JobFailedError, match="revoked"):
            await unwanted.wait(SOON)
        assert await (await queue.add("wanted")).wait(SOON) is None


async def test_a_worker_tells_what_happens_in_it(queue: AsyncQueue, server_url: str) -> None:
    told: list[WorkerEvent] = []

    async def work(job: AsyncActiveJob) -> None:
        if job.data == "bad":
            raise ValueError("no")

    options = JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=timedelta(0)))
    async with working(queue, work, server_url, concurrency=1) as worker:
        worker.subscribe(told.append)
        await (await queue.add("n", "good")).wait(SOON)
        await wait_until(lambda: told and told[-1].type == "drained", "the queue to be empty")
        good, told[:] = told[:], []
        bad = await queue.add("n", "bad", options)
        with pytest.raises(JobFailedError):
            await bad.wait(SOON)
        await wait_until(lambda: told[-1].type == "drained" and len(told) > 4, "the second failure to be told")
    assert [event.type for event in good] == ["active", "completed", "drained"]
    assert good[0].job is good[1].job is not None
    failures = [(event.reason, event.will_retry) for event in told if event.type == "failed"]
    assert failures == [("ValueError: no", True), ("ValueError: no", False)]


async def test_a_listener_that_fails_disturbs_nobody(
    queue: AsyncQueue, server_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[WorkerEvent] = []

    def fail(event: WorkerEvent) -> None:
        raise RuntimeError(f"no place for {event.type}")

    async with working(queue, nothing, server_url) as worker:
        worker.subscribe(fail)
        worker.subscribe(told.append)
        with caplog.at_level(logging.ERROR):
            await (await queue.add("n")).wait(SOON)
            await wait_until(lambda: len(told) == 3, "all to be told")
    assert "no place for active" in caplog.text


async def test_middleware_is_wrapped_around_every_handler_outermost_first(queue: AsyncQueue, server_url: str) -> None:
    steps: list[str] = []

    def noting(name: str) -> Any:
        async def middleware(job: AsyncActiveJob, call_next: Any) -> Any:
            steps.append(f"{name} before {job.name}")
            result = await call_next()
            steps.append(f"{name} after")
            return f"{name}({result})"

        return middleware

    def plain(_: Any) -> str:
        steps.append("handler")
        return "result"

    async with working(queue, plain, server_url, middleware=[noting("outer"), noting("inner")]):
        assert await (await queue.add("n")).wait(SOON) == "outer(inner(result))"
    assert steps == ["outer before n", "inner before n", "handler", "inner after", "outer after"]
