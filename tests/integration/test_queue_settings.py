"""What a queue sets for its jobs and workers; both faces, a real server, real workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue import Tasks
from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, JobFailedError, LeaseLostError
from orchestration_queue.options import Backoff, JobOptions, QueueSettings, RateLimit, Retention
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
    assert await queue.settings() == QueueSettings()
    assert await queue.configure() == QueueSettings()
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
    assert await queue.settings() == second, "nothing was changed"
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
    assert (await queue.settings()).attempts is None
    job = await queue.add("n")
    async with working(queue, fail, face.url):
        with pytest.raises(JobFailedError, match="attempt 1"):
            await job.wait(SOON)


async def test_limits_are_those_of_every_client(queue: AsyncQueue, raw: Any) -> None:
    found = await queue.configure(concurrency=3, rate_limit=RateLimit(max=5, duration=60))
    assert (found.concurrency, await queue.global_concurrency()) == (3, 3)
    assert found.rate_limit == await queue.global_rate_limit()
    assert raw.hmget(queue.keys.meta, "globalConcurrency", "rateLimitMax", "rateLimitDuration") == ["3", "5", "60000"]
    assert await queue.configure(concurrency=None, rate_limit=None) == QueueSettings()
    assert not raw.exists(queue.keys.meta)


async def test_dead_letters_go_where_the_queue_says(queue: AsyncQueue, face: Face, raw: Any) -> None:
    theirs, ours = f"{queue.name}-theirs", f"{queue.name}-ours"

    async def fail_one() -> str:
        job = await queue.add("n")
        with pytest.raises(JobFailedError):
            await job.wait(SOON)
        return job.id

    async def lost() -> list[str]:
        return [letter.original_job_id for letter in await queue.dead_letters.list()]

    def is_named(name: str) -> bool:
        return bool(raw.hget(queue.keys.meta, "deadLetterQueueName") == name)

    async with working(queue, fail, face.url, dead_letter_queue=theirs) as worker:
        first = await fail_one()
        assert await lost() == [first]
        await queue.configure(dead_letter_queue=ours)
        await wait_until(lambda: worker.io.defaults.dead_letter_queue == ours, "the worker to know")
        second = await fail_one()
        assert await lost() == [second]
        await queue.configure(dead_letter_queue=None)
        await wait_until(lambda: is_named(theirs), "the worker to name its own again")
        third = await fail_one()
        assert sorted(await lost()) == sorted([first, third])


async def test_a_queue_that_would_hold_its_own_dead_letters_is_refused(queue: AsyncQueue, raw: Any) -> None:
    with pytest.raises(InvalidOptionError, match="cannot keep its own dead letters"):
        await queue.configure(dead_letter_queue=queue.name, attempts=2)
    with pytest.raises(InvalidNameError):
        await queue.configure(dead_letter_queue="a:b", attempts=2)
    assert not raw.exists(queue.keys.meta)
    raw.hset(queue.keys.meta, "default:deadLetterQueue", queue.name)
    assert await queue.settings() == QueueSettings(), "written by another language, and of no use"


async def test_the_lease_of_the_queue_goes_before_the_workers(queue: AsyncQueue, face: Face) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def hold(_: AsyncActiveJob) -> None:
        started.set()
        await release.wait()

    await queue.configure(lease=2)
    async with working(queue, hold, face.url, lease=timedelta(hours=1)) as worker:
        job = await queue.add("n")
        await started.wait()
        await wait_until(lambda: worker.leases_renewed >= 1, "a renewal, which would be half an hour away")
        await queue.configure(lease=1)
        await wait_until(lambda: worker.io.defaults.lease_ms == 1000, "the worker to know")
        renewed = worker.leases_renewed
        await wait_until(lambda: worker.leases_renewed >= renewed + 2, "renewals of the running job")
        release.set()
        await job.wait(SOON)


async def test_a_lost_job_is_taken_over_after_the_lease_of_the_queue(queue: AsyncQueue, face: Face) -> None:
    async def done(_: AsyncActiveJob) -> None:
        pass

    await queue.configure(lease=1)
    await queue.add("n")
    (taken,) = await queue.take()
    async with working(queue, done, face.url, lease=timedelta(hours=1)):
        await (await queue.get(taken.id)).wait(SOON)
    with pytest.raises(LeaseLostError):
        await taken.complete()


async def test_oq_shows_and_sets_them(server_url: str, queue_name: str, raw: Any) -> None:
    oq = Oq(server_url)
    assert oq.json("queue", "config", queue_name)["settings"] == {}
    words = ("--attempts", "3", "--backoff", "exponential:2", "--timeout", "60", "--keep-completed", "9")
    told = oq.json("queue", "config", queue_name, *words)["settings"]
    assert told["timeout"] == 60
    assert (told["attempts"], told["backoff"]["type"], told["remove_on_complete"]["count"]) == (3, "exponential", 9)
    cleared = oq.json("queue", "config", queue_name, "--attempts", "0", "--timeout", "0", "--backoff", "0")["settings"]
    assert list(cleared) == ["remove_on_complete"]
    assert "no settings" in oq("queue", "config", queue_name, "--keep-completed", "-1").stdout
    more = ("--lease", "20", "--dead-letter-queue", "dead", "--concurrency", "2", "--rate", "5", "--per", "60")
    told = oq.json("queue", "config", queue_name, *more)["settings"]
    assert (told["lease"], told["dead_letter_queue"], told["concurrency"]) == (20, "dead", 2)
    assert told["rate_limit"] == {"max": 5, "duration": 60}
    assert "rate_limit (max 5, duration 60)" in oq("queue", "config", queue_name).stdout
    cleared = ("--lease", "0", "--dead-letter-queue", "", "--concurrency", "0", "--rate", "0")
    assert oq.json("queue", "config", queue_name, *cleared)["settings"] == {}
