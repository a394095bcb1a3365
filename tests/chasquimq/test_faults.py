"""Killed workers, broken connections and a full server: no job is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, ChasquiJob, NewChasquiJob
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq.working import is_settled, working
from tests.waiting import wait_until

LEASE = timedelta(milliseconds=300)


async def test_broken_connections_lose_no_job(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    ran: Counter[str] = Counter()
    ran_before = [0]

    async def note(job: ChasquiJob) -> None:
        ran[job.id] += 1
        await asyncio.sleep(0)
        if job.attempt == 0 and job.data % 5 == 0:
            raise RuntimeError("once")

    jobs = await queue.add_bulk([NewChasquiJob("x", number, backoff=0.01) for number in range(200)])
    async with working(queue.name, note, server_url, lease=LEASE, concurrency=5, store_results=True):
        for _ in range(5):
            ran_before[0] = ran.total()
            await wait_until(lambda: ran.total() > ran_before[0] or is_settled(server, keys), "a job to run")
            server.client_kill_filter(_type="normal", skipme=True)
        await wait_until(lambda: is_settled(server, keys), "all jobs to end")
    assert set(ran) == {job.id for job in jobs}
    assert (await queue.counts()).dead_letters == 0


WORKER = """
import asyncio, sys
from datetime import timedelta
import redis
from orchestration_queue.wires.chasquimq import ChasquiWorker, ChasquiWorkerOptions

queue, url = sys.argv[1:]

async def hang(job):
    redis.Redis(unix_socket_path=url.removeprefix("unix://")).rpush("started", job.id)
    await asyncio.sleep(3600)

options = ChasquiWorkerOptions(lease=timedelta(milliseconds=300))
asyncio.run(ChasquiWorker(queue, hang, url=url, options=options).run())
"""


@pytest.mark.chaos
async def test_a_killed_workers_jobs_run_elsewhere(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    jobs = await queue.add_bulk([NewChasquiJob("x", attempts=2)] * 3)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, queue.name, server_url)
    ran: dict[str, int] = {}

    async def note(job: ChasquiJob) -> None:
        ran[job.id] = job.attempt

    try:
        await wait_until(lambda: server.llen("started") == 3, "all jobs to start")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    async with working(queue.name, note, server_url, lease=LEASE):
        await wait_until(lambda: is_settled(server, keys), "the jobs to be taken over")
    assert ran == {job.id: 1 for job in jobs}


async def test_a_full_server_takes_completions_but_no_new_jobs(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    go = asyncio.Event()

    async def wait(job: ChasquiJob) -> str:
        await go.wait()
        return "x" * 100

    job = await queue.add("x")
    try:
        async with working(queue.name, wait, server_url, store_results=True, emit_events=False) as worker:
            await wait_until(lambda: worker.running == 1, "the job to start")
            server.config_set("maxmemory", 1)
            go.set()
            await wait_until(lambda: not server.xlen(keys.stream), "the completion to be recorded")
    finally:
        server.config_set("maxmemory", 0)
    assert await queue.find_result(job.id) in (None, "x" * 100)


async def test_a_full_server_still_lets_a_dead_workers_job_be_taken_over(
    queue: AsyncChasquiQueue, server: Any, keys: ChasquiKeys, server_url: str
) -> None:
    job = await queue.add("x")
    server.xgroup_create(keys.stream, "default", "0")
    server.xreadgroup("default", "dead", {keys.stream: ">"})
    seen: list[tuple[str, int]] = []

    async def note(job: ChasquiJob) -> None:
        seen.append((job.id, job.attempt))

    server.config_set("maxmemory", 1)
    try:
        async with working(queue.name, note, server_url, lease=LEASE, emit_events=False):
            await wait_until(lambda: not server.xlen(keys.stream), "the job to be taken over and completed")
    finally:
        server.config_set("maxmemory", 0)
    assert seen == [(job.id, 1)]
