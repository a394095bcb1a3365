"""Sandboxed handlers: in processes of their own, each job in a working directory of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from orchestration_queue import sandboxed
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, NewChasquiJob
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq import sandbox_handlers
from tests.chasquimq.working import is_settled, working
from tests.waiting import wait_until


async def test_a_job_runs_in_a_process_and_directory_of_its_own(
    queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys
) -> None:
    data = {"raw": b"\x00\xff", 5: None}
    jobs = await queue.add_bulk([NewChasquiJob("report", data) for _ in range(2)])
    async with working(queue.name, sandboxed(sandbox_handlers.report), server_url, store_results=True, concurrency=1):
        await wait_until(lambda: is_settled(server, keys), "all jobs to end")
    first, second = await queue.find_results([job.id for job in jobs])
    assert first["process"] == second["process"] != os.getpid()
    assert first["found"] == second["found"] == []
    assert not os.path.exists(first["directory"])  # noqa: ASYNC240, PTH110  it takes no time
    assert (first["id"], first["attempt"], first["data"]) == (jobs[0].id, 0, data)
    assert first["at"] == jobs[0].created_at.timestamp()


async def test_the_command_runs_jobs_in_sandboxes(
    queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys
) -> None:
    job = await queue.add("report")
    handler = "tests.chasquimq.sandbox_handlers:report"
    words = ("chasqui", "worker", queue.name, handler, "--sandbox", "--store-results", "--url", server_url)
    worker = await asyncio.create_subprocess_exec(Path(sys.executable).with_name("oq"), *words)
    try:
        await wait_until(lambda: server.exists(keys.result(job.id)), "the job to end", 60)
    finally:
        worker.terminate()
        assert await worker.wait() == 0
    result = await queue.find_result(job.id)
    assert result["process"] != worker.pid
    assert "oq-job-" in result["directory"]


async def test_a_handler_that_raises_or_dies_fails_its_job_alone(
    queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys
) -> None:
    await queue.add_bulk([NewChasquiJob(name, attempts=1) for name in ("raises", "dies", "hopeless", "unpackable")])
    async with working(queue.name, sandboxed(sandbox_handlers.break_down), server_url, concurrency=1):
        await wait_until(lambda: is_settled(server, keys), "all jobs to end")
    letters = {letter.name: letter for letter in await queue.dead_letters()}
    assert {name: letter.reason for name, letter in letters.items()} == {
        "raises": "retries_exhausted",
        "dies": "retries_exhausted",
        "hopeless": "unrecoverable",
        "unpackable": "unrecoverable",
    }
    assert "column" in str(letters["raises"].detail)
    assert "SIGKILL" in str(letters["dies"].detail)


async def test_a_worker_that_leaves_ends_the_process_and_leaves_the_job(
    queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys
) -> None:
    await queue.add("hangs")
    handler = sandboxed(sandbox_handlers.break_down)
    async with working(queue.name, handler, server_url, shutdown_timeout=timedelta(0)):
        await wait_until(lambda: server.xlen(keys.events), "the job to start")
    assert server.xpending(keys.stream, "default")["pending"] == 1
