"""The server is killed while jobs are added and run; every job that was accepted completes, and counts once."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import TransportError
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.server import AsyncConnection
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob, Worker

pytestmark = pytest.mark.chaos

JOBS = 300
KILLS = 3


async def add_for_sure(queue: AsyncQueue, number: int) -> None:
    """Add a job of a fixed id until the server said that it has it."""
    while True:
        try:
            await queue.add("work", number, JobOptions(job_id=f"job-{number}"))
            return
        except TransportError:
            await asyncio.sleep(0.02)


async def server_pid(connection: AsyncConnection) -> int:
    info: bytes = await connection.execute(Call("INFO", args=("server",)), repeatable=True)
    return int(info.decode().partition("process_id:")[2].split()[0])


async def test_jobs_survive_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    url = f"embedded://{tmp_path / 'oq'}"
    runs = 0

    async def work(job: AsyncActiveJob) -> int:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0.005)
        return int(job.data)

    options = WorkerOptions(
        concurrency=8,
        lease=timedelta(seconds=2),
        stalled_interval=timedelta(seconds=1),
        promotion_interval=timedelta(milliseconds=200),
        max_stalled=9,
    )
    async with AsyncQueue("q", url=url) as queue, await AsyncConnection.open(url) as connection:
        worker = Worker("q", work, url=url, options=options)
        running = asyncio.ensure_future(worker.run())
        for number in range(JOBS):
            if number % (JOBS // (KILLS + 1)) == JOBS // (KILLS + 2):
                os.kill(await server_pid(connection), signal.SIGKILL)
            await add_for_sure(queue, number)
        deadline = asyncio.get_running_loop().time() + 90
        while (await queue.counts()).completed < JOBS:
            assert asyncio.get_running_loop().time() < deadline, await queue.counts()
            await asyncio.sleep(0.05)
        jobs = await queue.jobs(JobState.COMPLETED)
        worker.stop()
        await running
    assert sorted(job.record.result for job in jobs) == list(range(JOBS))
    assert runs >= JOBS
