"""Node's clients, call by call of their wire, on a queue of tags, tracking, pools, shares, statistics and settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.options import JobOptions, Retention
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob
from tests.by_hand import HandWorker
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)
OPTIONS = (
    JobOptions(tags=("red",), share="acme"),
    JobOptions(tags=("red", "blue"), pools={"gpu": 1}),
    JobOptions(share="shop", priority=3),
    JobOptions(lifo=True, pools={"gpu": 2}, tags=("blue",)),
    JobOptions(),
)


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        await queue.configure(attempts=2, timeout=60, remove_on_complete=Retention(count=100), concurrency=50)
        await queue.shares.set("acme", 3)
        await queue.pools.set("gpu", 2)
        yield queue
        await queue.pools.remove("gpu")


async def test_a_node_worker_completes_and_fails_jobs_of_all_features(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    jobs = [await queue.add("n", number, options) for number in range(6) for options in OPTIONS]
    await jobs[0].track()
    with Connection.open(server_url) as node, HandWorker(server_url, queue.name) as hand:
        ran: Counter[str] = Counter()
        for number in range(len(jobs)):
            node.execute(glidemq.promote(queue.keys, now_ms=now_ms()))
            held = hand.take()
            ran[held.id] += 1
            if number % 10 == 9:
                hand.fail(held, "no disk")
            else:
                hand.complete(held, "done", Retention(count=0) if held.id == jobs[4].id else None)
    assert ran == Counter(job.id for job in jobs)
    counts = await queue.counts()
    assert (counts.waiting, counts.active, counts.failed, counts.completed) == (0, 0, 3, 26)
    assert (await queue.find(jobs[4].id)) is None
    (failures,) = await queue.failures()
    assert (failures.count, (await jobs[0].refresh()).is_tracked) == (3, True)
    assert [job.id for job in await queue.tracked()] == [jobs[0].id]
    assert {each.tag: each.jobs for each in await queue.tags.list()} == {"red": 12, "blue": 12}
    assert [(share.name, share.waiting) for share in await queue.shares.list()] == [("acme", 0)]
    pool = await queue.pools.find("gpu")
    assert pool is not None
    assert (pool.used, pool.waiting) == (0, 0)

    async def again(_: AsyncActiveJob) -> str:
        return "again"

    async with working(queue, again, server_url):
        assert await queue.retry_jobs() == 3
        await wait_until(lambda: raw.zcard(queue.keys.completed) == 29, "the retried jobs", 60)
    assert (await queue.statistics()).all.completed == 3, "of what our worker did; Node's keeps none"


async def test_jobs_that_a_node_client_adds_run_beside_all_features(queue: AsyncQueue, server_url: str) -> None:
    seen: list[str] = []

    async def handle(job: AsyncActiveJob) -> None:
        seen.append(job.name)

    await queue.pause()
    await queue.add_bulk([NewJob("ours", number, OPTIONS[number % len(OPTIONS)]) for number in range(20)])
    with Connection.open(server_url) as node:
        for number in range(5):
            node.execute(
                glidemq.add_job(
                    queue.keys, job_name="theirs", data=json.dumps(number), opts="{}", timestamp_ms=now_ms(),
                    custom_id=f"node{number}", max_attempts=3,
                )
            )  # fmt: skip
    waiting = await queue.counts()
    assert waiting.waiting + waiting.delayed >= 24
    async with working(queue, handle, server_url):
        await queue.resume()
        await wait_until(lambda: len(seen) >= 25, "all jobs", 60)
    assert Counter(seen) == {"ours": 20, "theirs": 5}
    assert (await queue.get("node0")).state is JobState.COMPLETED
    assert await queue.obliterate() > 0
    assert await queue.tags.list() == []
    assert await queue.shares.list() == []
    assert await queue.tracked() == []
