"""Changes that make a job due wake an idle worker, which would otherwise sleep for minutes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncJob, AsyncQueue, NewJob
from orchestration_queue.options import JobOptions
from orchestration_queue.worker import AsyncActiveJob
from tests.faces import Face
from tests.waiting import wait_until
from tests.workers import working

ASLEEP: dict[str, Any] = {
    name: timedelta(minutes=10) for name in ("block", "promotion_interval", "stalled_interval", "flow_interval")
}


async def work(job: AsyncActiveJob) -> str:
    if job.data == "fail" and not job.record.fields.get("failedReason") and job.record.fields.get("fixed") != "1":
        raise ValueError("not yet")
    return "done"


def is_idle(raw: redis.Redis) -> bool:
    """Whether a worker waits for jobs and for signals."""
    waiting = [client for client in raw.client_list() if "b" in client["flags"]]
    return {client["cmd"] for client in waiting} >= {"xreadgroup", "xread"}


def is_listening(raw: redis.Redis) -> bool:
    """Whether a worker waits for signals."""
    return any(client["cmd"] == "xread" for client in raw.client_list() if "b" in client["flags"])


@pytest.mark.parametrize("change", ["change_delay", "promote", "promote, lifo", "retry_jobs"])
async def test_a_change_that_makes_a_job_due_wakes_an_idle_worker(
    face: Face, queue_name: str, server_url: str, raw: redis.Redis, change: str
) -> None:
    async with face.queue(queue_name) as queue, working(queue, work, server_url, **ASLEEP):
        fails = change == "retry_jobs"
        options = JobOptions(delay=timedelta(0) if fails else timedelta(hours=1), lifo=change.endswith("lifo"))
        job: AsyncJob = await queue.add("task", "fail" if fails else None, options=options)
        if fails:
            await wait_until(lambda: raw.zcard(queue.keys.failed), "the job failed")
            raw.hset(queue.keys.job(job.id), "fixed", 1)
        await wait_until(lambda: is_idle(raw), "the worker is idle")
        match change.partition(",")[0]:
            case "change_delay":
                await job.change_delay(0)
            case "promote":
                await job.promote()
            case _:
                assert await queue.retry_jobs() == 1
        assert await job.wait(timedelta(seconds=60)) == "done"


@pytest.mark.parametrize("options", [JobOptions(), JobOptions(lifo=True), JobOptions(priority=3)])
async def test_a_resumed_queue_wakes_an_idle_worker(
    face: Face, queue_name: str, server_url: str, raw: redis.Redis, options: JobOptions
) -> None:
    async with face.queue(queue_name) as queue:
        await queue.pause()
        async with working(queue, work, server_url, **ASLEEP):
            job = await queue.add("task", options=options)
            await wait_until(lambda: is_listening(raw), "the worker is idle")
            await queue.resume()
            assert await job.wait(timedelta(seconds=60)) == "done"


def idle_workers(raw: redis.Redis) -> int:
    """How many workers wait for jobs."""
    return sum(client["cmd"] == "xreadgroup" for client in raw.client_list() if "b" in client["flags"])


def calls_of_functions(raw: redis.Redis) -> int:
    return int(raw.info("commandstats")["cmdstat_fcall"]["calls"])


@pytest.mark.parametrize("options", [JobOptions(lifo=True), JobOptions(priority=3)])
async def test_a_job_of_a_list_wakes_one_of_twenty_idle_workers(
    queue_name: str, server_url: str, raw: redis.Redis, options: JobOptions
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue, AsyncExitStack() as fleet:
        for _ in range(20):
            await fleet.enter_async_context(working(queue, work, server_url, **ASLEEP))
        await wait_until(lambda: idle_workers(raw) == 20, "all are idle")
        before = calls_of_functions(raw)
        for _ in range(5):
            job = await queue.add("task", options=options)
            assert await job.wait(timedelta(seconds=60)) == "done"
            await wait_until(lambda: idle_workers(raw) == 20, "all are idle again")
        # A job: its adding, the signal, its start, its end, a look for more. Twenty that are woken ask twenty times.
        assert calls_of_functions(raw) - before <= 5 * 10
        assert raw.xlen(queue.keys.wake_one) == 0, "no signal is left behind"


async def test_a_worker_without_a_free_slot_passes_the_signal_on(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    together = asyncio.Barrier(3)

    async def meet(_: AsyncActiveJob) -> str:
        await together.wait()
        return "met"

    async with AsyncQueue(queue_name, url=server_url) as queue, AsyncExitStack() as fleet:
        for _ in range(3):
            await fleet.enter_async_context(working(queue, meet, server_url, **ASLEEP, concurrency=1))
        await wait_until(lambda: idle_workers(raw) == 3, "all are idle")
        jobs = await queue.add_bulk([NewJob("task", options=JobOptions(lifo=True))] * 3)
        assert [await job.wait(timedelta(seconds=60)) for job in jobs] == ["met"] * 3


async def test_workers_that_read_no_signals_to_one_are_all_signaled(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        await queue.add("task", options=JobOptions(lifo=True))
        assert [fields for _, fields in raw.xrange(queue.keys.wake) or ()] == [{"due": "1"}]
        assert not raw.exists(queue.keys.wake_one)
