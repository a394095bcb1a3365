"""Pools with real workers: never more jobs than slots, none lost, in order of arrival, started when one is free."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import JobFailedError, StateError
from orchestration_queue.options import Backoff, JobOptions, WorkerOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.waiting import wait_until


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: Any) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        await queue.pools.set(queue_name, 2)
        yield queue
        await queue.obliterate(force=True)
        for key in raw.keys("glide:{:pools}:*"):
            raw.delete(key)


class Gate:
    """A handler that notes who runs, and lets each go when told."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.done: list[str] = []
        self.open = asyncio.Event()
        self.doors: dict[str, asyncio.Event] = {}

    async def __call__(self, job: AsyncActiveJob) -> None:
        self.running.append(job.name)
        self.most = max(self.most, len(self.running))
        door = self.doors.setdefault(job.name, asyncio.Event())
        try:
            opened = [asyncio.ensure_future(event.wait()) for event in (door, self.open)]
            await asyncio.wait(opened, return_when=asyncio.FIRST_COMPLETED)
            for each in opened:
                each.cancel()
        finally:
            self.running.remove(job.name)
        self.done.append(job.name)

    def has_ended(self, left: int) -> bool:
        """Whether only `number` of six jobs are left, and two run if there are two."""
        return len(self.done) == 6 - left and len(self.running) == min(2, left)

    def let(self, name: str) -> None:
        self.doors.setdefault(name, asyncio.Event()).set()


@asynccontextmanager
async def working(queue: AsyncQueue, handler: Any, **options: Any) -> AsyncIterator[Worker]:
    settings = {"concurrency": 10, "promotion_interval": timedelta(minutes=5), **options}
    worker = Worker(queue.name, handler, url=str(queue.url), options=WorkerOptions(**settings))
    running = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.kill()
        await asyncio.wait_for(running, 60)


def needs(queue: AsyncQueue, slots: int = 1, **options: Any) -> JobOptions:
    return JobOptions(pools={queue.name: slots}, **options)


async def waiting(queue: AsyncQueue, raw: Any, number: int) -> None:
    """Return when `number` jobs of the queue wait for its pool, and are off their workers."""
    keys = QueueKeys(queue.name)
    await wait_until(
        lambda: raw.zcard(keys.pool_waiters(queue.name)) == number == raw.zcard(keys.scheduled),
        f"{number} waiting jobs",
    )


async def test_no_more_jobs_run_than_slots_and_each_freed_slot_starts_the_next(queue: AsyncQueue, raw: Any) -> None:
    gate = Gate()
    async with working(queue, gate):
        for name in "abcdef":
            await queue.add(name, None, needs(queue))
        await wait_until(lambda: len(gate.running) == 2, "two jobs")
        await waiting(queue, raw, 4)
        order = list(gate.running)
        while len(gate.done) < 6:
            left = 5 - len(gate.done)
            gate.let(gate.running[0])
            await wait_until(partial(gate.has_ended, left), "the next job")
            order += [name for name in gate.running if name not in order]
    assert gate.most == 2
    assert len(order) == 6
    pool = await queue.pools.find(queue.name)
    assert pool is not None
    assert (pool.used, pool.waiting) == (0, 0)


async def test_a_job_that_waits_for_a_pool_keeps_no_slot_of_its_worker(queue: AsyncQueue, raw: Any) -> None:
    gate = Gate()
    await queue.pools.set(queue.name, 0)
    async with working(queue, gate, concurrency=1):
        for name in "abc":
            await queue.add(name, None, needs(queue))
        await waiting(queue, raw, 3)
        await queue.add("free")
        await wait_until(lambda: gate.running == ["free"], "the job without a pool")
        gate.let("free")
        gate.open.set()
        await queue.pools.set(queue.name, 1)
        await wait_until(lambda: gate.done == ["free", "a", "b", "c"], "the jobs in order of arrival")


async def test_a_job_that_needs_all_slots_is_not_starved_by_those_that_need_one(queue: AsyncQueue, raw: Any) -> None:
    gate = Gate()
    async with working(queue, gate):
        await queue.add("a", None, needs(queue))
        await wait_until(lambda: gate.running == ["a"], "the first job")
        big = await queue.add("all", None, needs(queue, 2))
        await waiting(queue, raw, 1)
        assert (await big.explain()).sentence == (
            f"It waits for 2 slots of pool '{queue.name}': 1 of 2 are held by {queue.name}/1 (1); jobs that wait: 1."
        )
        await queue.add("b", None, needs(queue))
        await waiting(queue, raw, 2)
        assert gate.running == ["a"], "one slot is kept free for the job that came first"
        gate.let("a")
        await wait_until(lambda: gate.running == ["all"], "the job that needs all")
        gate.let("all")
        await wait_until(lambda: gate.running == ["b"], "the job that came later")


async def test_slots_come_back_with_every_outcome(queue: AsyncQueue, raw: Any) -> None:
    async def handle(job: AsyncActiveJob) -> None:
        if job.name == "retry" and job.attempt == 1:
            raise RuntimeError("once")
        if job.name == "fail":
            raise RuntimeError("always")
        if job.name == "later" and job.data is None:
            await job.move_to_delayed(timedelta(0), data="again")
        if job.name == "cancel":
            await asyncio.sleep(600)

    async with working(queue, handle):
        cancelled = await queue.add("cancel", None, needs(queue, 2))
        await wait_until(lambda: raw.hlen(QueueKeys(queue.name).pool_holders(queue.name)) == 1, "the job to run")
        await cancelled.cancel()
        jobs = [
            await queue.add("retry", None, needs(queue, 2, attempts=2, backoff=Backoff(type="fixed", delay=0))),
            await queue.add("later", None, needs(queue, 2)),
            await queue.add("fail", None, needs(queue, 2)),
            await queue.add("last", None, needs(queue, 2)),
        ]
        for job in (jobs[0], jobs[1], jobs[3]):
            await job.wait(timedelta(seconds=60))
        with pytest.raises(JobFailedError):
            await jobs[2].wait(timedelta(seconds=60))
    pool = await queue.pools.find(queue.name)
    assert pool is not None
    assert (pool.used, pool.waiting) == (0, 0)


async def test_pools_are_shared_by_queues_and_taken_together(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    gate, other_gate = Gate(), Gate()
    gpu = f"{queue.name}-gpu"
    await queue.pools.set(gpu, 1)
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(AsyncQueue(f"{queue.name}-other", url=server_url))
        await stack.enter_async_context(working(queue, gate))
        await stack.enter_async_context(working(other, other_gate))
        both = JobOptions(pools={queue.name: 2, gpu: 1})
        await queue.add("a", None, both)
        await wait_until(lambda: gate.running == ["a"], "the first job")
        await other.add("b", None, both)
        await wait_until(lambda: raw.zcard(QueueKeys(other.name).scheduled) == 1, "the other queue's job to wait")
        gate.let("a")
        await wait_until(lambda: other_gate.running == ["b"], "the other queue's job")
        names = [pool.name for pool in await queue.pools.list()]
        assert {queue.name, gpu} <= set(names)
        pool = await queue.pools.find(gpu)
        holders = pool.holders if pool else ()
        assert [(holder.queue, holder.slots) for holder in holders] == [(other.name, 1)]
        other_gate.open.set()
        await wait_until(lambda: other_gate.done == ["b"], "its end")
        await other.obliterate(force=True)


async def test_a_job_of_an_unknown_pool_fails_and_says_what_to_do(queue: AsyncQueue) -> None:
    async with working(queue, Gate()):
        job = await queue.add("a", None, JobOptions(pools={"nowhere": 1}, attempts=3))
        with pytest.raises(JobFailedError, match="Pool 'nowhere' is not defined; define it with"):
            await job.wait(timedelta(seconds=60))


async def test_slots_of_a_dead_worker_are_free_when_its_lease_ends(queue: AsyncQueue, raw: Any) -> None:
    token = "glide:{" + queue.name + "}:dead"
    key = "glide:{:pools}:holders:" + queue.name
    raw.hset(key, token, "1 2 1")
    raw.hset(key, "junk", "no holder")
    gate = Gate()
    gate.open.set()
    async with working(queue, gate):
        await queue.add("a", None, needs(queue, 2))
        await wait_until(lambda: gate.done == ["a"], "the job")
    assert not raw.exists(key)


async def test_heartbeats_restore_slots_that_were_lost(queue: AsyncQueue, raw: Any) -> None:
    gate = Gate()
    key = "glide:{:pools}:holders:" + queue.name
    async with working(queue, gate):
        await queue.add("a", None, needs(queue, 2, lease=timedelta(seconds=1)))
        await wait_until(lambda: gate.running == ["a"], "the job")
        raw.delete(key)
        await wait_until(lambda: raw.hlen(key) == 1, "its heartbeat")
        gate.open.set()
        await wait_until(lambda: gate.done == ["a"], "its end")
        await wait_until(lambda: not raw.exists(key), "its release")


async def test_a_pool_in_use_is_not_removed(queue: AsyncQueue) -> None:
    gate = Gate()
    async with working(queue, gate):
        await queue.add("a", None, needs(queue))
        await wait_until(lambda: gate.running == ["a"], "the job")
        with pytest.raises(StateError, match="is in use"):
            await queue.pools.remove(queue.name)
        gate.open.set()
        await wait_until(lambda: gate.done == ["a"], "its end")
    assert await queue.pools.remove(queue.name)
    assert not await queue.pools.remove(queue.name)
    assert await queue.pools.find(queue.name) is None


async def test_cancelled_and_removed_jobs_leave_their_place(queue: AsyncQueue, raw: Any) -> None:
    gate = Gate()
    async with working(queue, gate):
        first = await queue.add("first", None, needs(queue, 2))
        await wait_until(lambda: gate.running == ["first"], "the first job")
        jobs = await queue.add_bulk([NewJob(f"j{number}", None, needs(queue, 2)) for number in range(3)])
        await waiting(queue, raw, 3)
        by_arrival = sorted(jobs, key=lambda job: int(job.id))
        await by_arrival[0].cancel()
        await by_arrival[1].remove()
        gate.let("first")
        await wait_until(lambda: gate.running == [by_arrival[2].name], "the job behind both")
        pool = await queue.pools.find(queue.name)
        assert pool is not None
        assert pool.waiting == 0
    assert first.id


async def test_a_job_that_needs_more_than_the_pool_has_says_so(queue: AsyncQueue, raw: Any) -> None:
    async with working(queue, Gate()):
        job = await queue.add("a", None, needs(queue, 3))
        await waiting(queue, raw, 1)
        found = await job.explain()
    assert found.sentence == f"It needs 3 slots of pool '{queue.name}', which has 2."
    assert found.action == f"oq pool set {queue.name} 3"
    assert found.facts["pools"] == {queue.name: {"needed": 3, "slots": 2, "used": 0, "waiting": 1}}


def test_pools_in_the_terminal(server_url: str, raw: Any, queue_name: str) -> None:
    def oq(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--url", server_url, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    name = f"{queue_name}-cli"
    token = QueueKeys(queue_name).member("7")
    assert oq("pool", "set", name, "8") == {"name": name, "slots": 8}
    raw.hset(QueueKeys(queue_name).pool_holders(name), token, "4000000000000 2 1")
    found = oq("pool", "show", name)
    assert [holder.pop("until") for holder in found["holders"]] == ["2096-10-02T07:06:40+00:00"]
    assert found == {
        "name": name,
        "slots": 8,
        "used": 2,
        "waiting": 0,
        "holders": [{"queue": queue_name, "id": "7", "slots": 2}],
    }
    assert [pool["used"] for pool in oq("pool", "ls") if pool["name"] == name] == [2]
    shown = CliRunner().invoke(app, ["pool", "show", name, "--url", server_url]).stdout
    assert queue_name in shown
    raw.delete(QueueKeys(queue_name).pool_holders(name))
    assert oq("pool", "rm", name, "--yes") == {"name": name, "removed": True}
    assert oq("pool", "rm", name, "--yes") == {"name": name, "removed": False}
    assert oq("job", "add", queue_name, "x", "--pool", "warehouse=2", "--pool", "gpu")["is_new"]
    assert oq("job", "show", queue_name, "1")["pools"] == {"gpu": 1, "warehouse": 2}
