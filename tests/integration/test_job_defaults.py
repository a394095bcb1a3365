"""What a queue sets for jobs that were added without options; both faces, a real server, real workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue import Tasks
from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import InvalidOptionError, JobFailedError
from orchestration_queue.options import Backoff, JobDefaults, JobOptions, Retention
from orchestration_queue.worker import AsyncActiveJob
from tests.faces import Face
from tests.integration.test_cli import Oq
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)
AT_ONCE = Backoff(type="fixed", delay=0)


@pytest.fixture
async def queue(face: Face, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with face.queue(queue_name) as queue:
        yield queue


async def fail(job: AsyncActiveJob) -> None:
    raise ValueError(f"attempt {job.attempt}")


async def test_settings_are_kept_changed_one_by_one_and_removed(queue: AsyncQueue, raw: Any) -> None:
    assert await queue.job_defaults() == JobDefaults()
    assert await queue.configure() == JobDefaults()
    first = await queue.configure(
        attempts=3, backoff=Backoff(type="exponential", delay=2), remove_on_fail=Retention(count=5)
    )
    assert (first.attempts, first.timeout, first.remove_on_fail) == (3, None, Retention(count=5))
    assert first.backoff is not None
    assert (first.backoff.type, first.backoff.delay) == ("exponential", timedelta(seconds=2))
    second = await queue.configure(attempts=None, timeout=1.5)
    assert (second.attempts, second.timeout, second.backoff) == (None, timedelta(seconds=1.5), first.backoff)
    with pytest.raises(InvalidOptionError, match="attempts"):
        await queue.configure(timeout=9, attempts=-1)
    assert await queue.job_defaults() == second, "nothing was changed"
    await queue.configure(timeout=None, backoff=None, remove_on_fail=None)
    assert not [name for name in raw.hkeys(queue.keys.meta) if name.startswith("default:")]


async def test_a_job_goes_before_its_task_and_its_task_before_the_queue(queue: AsyncQueue, face: Face) -> None:
    tasks = Tasks()

    @tasks.task(options=JobOptions(attempts=3, backoff=AT_ONCE))
    def declared() -> None:
        raise ValueError("no")

    @tasks.task
    def plain() -> None:
        raise ValueError("no")

    await queue.configure(attempts=2, backoff=AT_ONCE)
    own = JobOptions(attempts=4, backoff=AT_ONCE)
    new = [
        NewJob("plain"),
        NewJob("declared"),
        NewJob("plain", options=own),
        NewJob("plain", options=JobOptions(attempts=1)),
    ]
    jobs = await queue.add_bulk(new)
    made = []
    async with working(queue, tasks, face.url):
        for job in jobs:
            with pytest.raises(JobFailedError):
                await job.wait(SOON)
            made.append((await job.refresh()).attempts_made)
    assert made == [2, 3, 4, 1]


async def test_a_running_worker_heeds_a_change(queue: AsyncQueue, face: Face, raw: Any) -> None:
    async with working(queue, fail, face.url) as worker:
        await wait_until(lambda: worker.is_listening, "the worker to listen")
        await queue.configure(attempts=2, backoff=AT_ONCE, remove_on_fail=Retention(count=0))

        async with face.queue(queue.name) as other:
            for _ in range(200):
                job = await other.add("n")
                with pytest.raises(JobFailedError) as failed:
                    await job.wait(SOON)
                if "attempt 2" in str(failed.value):
                    break
            assert "attempt 2" in str(failed.value)
            assert await other.find(job.id) is None, "the retention of the queue holds"


async def test_a_time_limit_of_the_queue_holds(queue: AsyncQueue, face: Face) -> None:
    async def endless(_: AsyncActiveJob) -> None:
        await asyncio.Event().wait()

    await queue.configure(timeout=0.2)
    job = await queue.add("n")
    async with working(queue, endless, face.url):
        with pytest.raises(JobFailedError, match="timeout"):
            await job.wait(SOON)


async def test_a_taker_heeds_the_queue(queue: AsyncQueue) -> None:
    await queue.configure(attempts=2, backoff=AT_ONCE)
    await queue.add("n")
    (taken,) = await queue.take()
    assert await taken.fail("once") is True
    (again,) = await queue.take(wait=SOON)
    assert await again.fail("twice") is False


async def test_settings_that_cannot_be_read_are_left_out(queue: AsyncQueue, face: Face, raw: Any) -> None:
    junk = {"default:attempts": "many", "default:backoff": "[", "default:timeout": '"x"', "default:removeOnFail": "{}"}
    raw.hset(queue.keys.meta, mapping=junk)
    assert (await queue.job_defaults()).attempts is None
    job = await queue.add("n")
    async with working(queue, fail, face.url):
        with pytest.raises(JobFailedError, match="attempt 1"):
            await job.wait(SOON)


async def test_oq_shows_and_sets_them(server_url: str, queue_name: str, raw: Any) -> None:
    oq = Oq(server_url)
    assert oq.json("queue", "config", queue_name)["defaults"] == {}
    words = ("--attempts", "3", "--backoff", "exponential:2", "--timeout", "60", "--keep-completed", "9")
    told = oq.json("queue", "config", queue_name, *words)["defaults"]
    assert (told["attempts"], told["backoff"]["type"], told["remove_on_complete"]["count"]) == (3, "exponential", 9)
    cleared = oq.json("queue", "config", queue_name, "--attempts", "0", "--timeout", "0", "--backoff", "0")["defaults"]
    assert list(cleared) == ["remove_on_complete"]
    assert "no defaults" in oq("queue", "config", queue_name, "--keep-completed", "-1").stdout
