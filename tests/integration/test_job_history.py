"""A job that failed three times for three reasons is understood from its history alone."""

from __future__ import annotations

import asyncio
from typing import Any

from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.options import JobOptions
from tests.waiting import wait_until
from tests.workers import working


async def test_three_failures_are_understood(raw: Any, server_url: str, queue_name: str) -> None:
    async def load(job: Any) -> None:
        await job.log(f"loading part {job.attempt}")
        raise (ValueError("no such column"), PermissionError("bucket is read-only"), UploadError("quota"))[
            job.attempt - 1
        ]

    async with AsyncQueue(queue_name, url=server_url) as queue:
        async with working(queue, load, server_url):
            job = await queue.add("load", 1, JobOptions(attempts=3, backoff={"type": "fixed", "delay": 0}))
            await wait_until(lambda: raw.hget(queue.keys.job(job.id), "state") == "failed", "the job to fail")
        await job.refresh()
    assert [(entry.attempt, entry.error, entry.logs[-1]) for entry in job.history] == [
        (1, "ValueError", "loading part 1"),
        (2, "PermissionError", "loading part 2"),
        (3, f"{__name__}.UploadError", "loading part 3"),
    ]
    for entry in job.history:
        assert entry.worker
        assert entry.host
        assert "in load" in entry.traceback
        assert entry.started_at is not None
        assert entry.ended_at is not None
    arguments = ["job", "show", queue_name, job.id]
    shown = await asyncio.to_thread(CliRunner().invoke, app, arguments, env={"OQ_URL": server_url, "COLUMNS": "200"})
    for text in ("attempt 1 failed on", "[ValueError] ValueError: no such column", "log: loading part 2", "quota"):
        assert text in shown.stdout


async def test_jobs_that_succeed_have_no_history_and_cost_five_commands(
    raw: Any, server_url: str, queue_name: str
) -> None:
    async def work(_: Any) -> None: ...

    count = 2000
    async with AsyncQueue(queue_name, url=server_url) as queue:
        jobs = await queue.add_bulk([NewJob("work") for _ in range(count)])
        raw.config_resetstat()
        async with working(queue, work, server_url, concurrency=100):
            await wait_until(lambda: raw.zcard(queue.keys.completed) == count, "all jobs")
        calls = {name: told["calls"] for name, told in raw.info("commandstats").items() if name != "cmdstat_zcard"}
    # Whatever goes once for many jobs is left out: only the rest grows with the number of jobs.
    of_each = {name.removeprefix("cmdstat_"): number // count for name, number in calls.items() if number >= count}
    assert of_each == {"hset": 2, "hmget": 1, "hgetall": 1, "xadd": 1}
    assert not any(raw.hexists(queue.keys.job(job.id), "history") for job in jobs)


class UploadError(OrchestrationQueueError):
    """Of the test."""
