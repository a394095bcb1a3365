"""Workers fire the queue's repeatable jobs: on time and once each, under any leader."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.schedules import Cron, Every, JobTemplate, RepeatAfterComplete
from orchestration_queue.server.clock import now_ms
from orchestration_queue.testing import TimeMachine
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.waiting import wait_until

QUICK = WorkerOptions(concurrency=2, promotion_interval=timedelta(milliseconds=100))


class Log:
    """A handler that notes when each job ran."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.jobs: list[tuple[str, str, Any]] = []
        self.busy_s = 0.0
        self.fails = False

    async def __call__(self, job: AsyncActiveJob) -> None:
        self.starts.append(time.time())
        self.jobs.append((job.id, job.name, job.data))
        await asyncio.sleep(self.busy_s)
        self.ends.append(time.time())
        if self.fails:
            raise ValueError("as told")


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@asynccontextmanager
async def workers(queue: AsyncQueue, url: str, log: Log, count: int = 1) -> AsyncIterator[None]:
    """Some workers of the queue, stopped in the end."""

    async def handle(job: AsyncActiveJob) -> None:
        await log(job)

    async with AsyncExitStack() as stack:
        for _ in range(count):
            worker = Worker(queue.name, handle, url=url, options=QUICK)
            running = asyncio.ensure_future(worker.run())

            async def stop(worker: Worker = worker, running: asyncio.Future[None] = running) -> None:
                worker.stop()
                await asyncio.wait_for(running, 60)

            stack.push_async_callback(stop)
        yield


async def test_every_keeps_its_phase_and_makes_the_template(queue: AsyncQueue, server_url: str) -> None:
    log = Log()
    await queue.schedulers.upsert(
        "often", Every(timedelta(milliseconds=250), limit=4), JobTemplate(name="tick", data={"n": 1})
    )
    async with workers(queue, server_url, log):
        await wait_until(lambda: len(log.starts) == 4, "four runs")
        await asyncio.sleep(0.3)
    assert [(name, data) for _, name, data in log.jobs] == [("tick", {"n": 1})] * 4
    due = [int(job_id.rpartition(".")[2]) for job_id, _, _ in log.jobs]
    assert [(later - earlier) % 250 for earlier, later in itertools.pairwise(due)] == [0, 0, 0]
    assert await queue.schedulers.list() == {}


async def test_several_workers_fire_each_run_once(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    log = Log()
    await queue.schedulers.upsert("often", Every(timedelta(milliseconds=100), limit=12))
    async with workers(queue, server_url, log, count=4):
        await wait_until(lambda: len(log.starts) >= 12, "twelve runs")
        await asyncio.sleep(0.3)
    ids = [job_id for job_id, _, _ in log.jobs]
    assert len(ids) == len(set(ids)) == 12


async def test_a_cron_that_is_due_fires_and_plans_the_next_minute(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    log = Log()
    with TimeMachine() as clock:
        clock.travel(65 - now_ms() % 60_000 / 1000)  # the minute after this one is far
        await queue.schedulers.upsert("minutely", Cron("*/1 * * * *", tz="Europe/Berlin"))
        stored = json.loads(str(raw.hget(queue.keys.schedulers, "minutely")))
        stored["nextRun"] = now_ms() - 1
        raw.hset(queue.keys.schedulers, "minutely", json.dumps(stored))
        async with workers(queue, server_url, log):
            await wait_until(lambda: log.starts, "the run")
    after = json.loads(str(raw.hget(queue.keys.schedulers, "minutely")))
    assert after["iterationCount"] == 1
    assert after["nextRun"] % 60_000 == 0
    assert 0 < after["nextRun"] - after["lastRun"] <= 60_000


@pytest.mark.parametrize("fails", [False, True], ids=["completed", "failed"])
async def test_repeat_after_complete_runs_one_after_the_other_until_its_limit(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, fails: bool
) -> None:
    log = Log()
    log.busy_s, log.fails = 0.2, fails
    template = JobTemplate(name="step", options=JobOptions(attempts=1))
    await queue.schedulers.upsert("steps", RepeatAfterComplete(timedelta(milliseconds=150), limit=2), template)
    async with workers(queue, server_url, log, count=2):
        await wait_until(lambda: len(log.ends) == 2, "both runs")
        await wait_until(lambda: not raw.exists(queue.keys.schedulers), "the schedule to learn of the last one's end")
        await asyncio.sleep(0.4)
    assert len(log.starts) == 2
    assert log.starts[1] - log.ends[0] >= 0.14


async def test_nobody_fires_while_somebody_else_holds_the_lock(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    log = Log()
    raw.set(queue.keys.schedulers_lock, "another worker", px=60_000)
    raw.hset(queue.keys.schedulers, "often", json.dumps({"every": 100, "nextRun": 1, "iterationCount": 0}))
    async with workers(queue, server_url, log):
        await asyncio.sleep(0.5)
        assert json.loads(str(raw.hget(queue.keys.schedulers, "often")))["iterationCount"] == 0
        assert log.starts == []
        raw.delete(queue.keys.schedulers_lock)
        await wait_until(lambda: log.starts, "a run once the lock is free")


@pytest.mark.parametrize(
    "entry",
    [
        {"every": 1000, "nextRun": 1, "limit": 3, "iterationCount": 3},
        {"every": -5, "nextRun": 1},
        {"pattern": "99 * * * *", "nextRun": 1},
        {"every": 1000, "nextRun": 2, "endDate": 1},
    ],
    ids=["exhausted", "negative", "broken cron", "ended"],
)
async def test_entries_that_can_never_run_again_go_without_a_job(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, entry: dict[str, object]
) -> None:
    log = Log()
    raw.hset(queue.keys.schedulers, "bad", json.dumps(entry))
    async with workers(queue, server_url, log):
        await wait_until(lambda: not raw.hexists(queue.keys.schedulers, "bad"), "the entry to go")
    assert log.starts == []
