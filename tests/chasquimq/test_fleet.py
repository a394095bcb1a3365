"""A fleet of workers of both kinds, each a process that may be killed at any time: no job is lost."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import Process
from typing import Any

import pytest

from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, NewChasquiJob
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq.redis86 import redis86
from tests.chasquimq.working import is_settled
from tests.waiting import wait_until

pytest.importorskip("chasquimq", reason="the original is not installed (make installs it)")

OURS = """
import asyncio, sys
from datetime import timedelta
import redis.asyncio as redis
from orchestration_queue.wires.chasquimq import ChasquiWorker, ChasquiWorkerOptions

queue, socket, url = sys.argv[1:]
server = redis.Redis(unix_socket_path=socket)

async def work(job):
    await server.hincrby("ran", job.id, 1)
    await server.incr("ran by ours")

# The original renews no lease: one shorter than it holds what it reads ahead would take jobs from its living workers.
options = ChasquiWorkerOptions(lease=timedelta(seconds=3), concurrency=10)
asyncio.run(ChasquiWorker(queue, work, url="unix://" + socket, options=options).run())
"""
THEIRS = """
import asyncio, sys
import chasquimq
import redis.asyncio as redis

queue, socket, url = sys.argv[1:]
server = redis.Redis(unix_socket_path=socket)

async def work(job):
    await server.hincrby("ran", job.id, 1)
    await server.incr("ran by theirs")

async def main():
    await chasquimq.Worker(queue, work, redis_url=url, concurrency=10, read_block_ms=50, claim_min_idle_ms=60_000).run()

asyncio.run(main())
"""


@pytest.mark.chaos
async def test_a_fleet_of_both_kinds_loses_no_job_to_kills(
    queue: AsyncChasquiQueue, server: Any, server_url: str, keys: ChasquiKeys, pytestconfig: pytest.Config
) -> None:
    count = pytestconfig.getoption("--chasquimq-jobs")
    chance = random.Random(count)
    socket = server_url.removeprefix("unix://")
    fleet: list[tuple[str, Process]] = []

    with redis86(socket) as url:

        async def start(script: str) -> None:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, queue.name, socket, url)
            fleet.append((script, process))

        async def kill_one() -> None:
            script, process = fleet.pop(chance.randrange(len(fleet)))
            process.kill()
            await process.wait()
            await start(script)

        jobs = await queue.add_bulk([NewChasquiJob("x", n, delay=n % 4 / 4) for n in range(count)])
        try:
            for script in (OURS, THEIRS, OURS, THEIRS):
                await start(script)
            for part in range(1, 5):
                ran = count * part // 6
                await wait_until(lambda ran=ran: server.hlen("ran") >= ran, f"{ran} jobs to run")  # type: ignore[misc]
                await kill_one()
            await wait_until(lambda: is_settled(server, keys), "all jobs to end")
        finally:
            for _, process in fleet:
                process.kill()
                await process.wait()
    times = {job_id.decode(): int(ran) for job_id, ran in server.hgetall("ran").items()}
    assert set(times) == {job.id for job in jobs}
    assert sum(ran > 1 for ran in times.values()) <= 4 * 10, "only what ran in a killed process runs again"
    assert (await queue.counts()).dead_letters == 0
    assert int(server.get("ran by ours")) > 0
    assert int(server.get("ran by theirs")) > 0
