"""Changes that make a job due wake an idle worker, which would otherwise sleep for minutes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncJob
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
