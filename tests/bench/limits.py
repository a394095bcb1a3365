"""What the work of a row costs without a queue: a thread's round trip, a pipe's, the same jobs without a flow."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor

from orchestration_queue.client import NewJob, Queue
from tests.bench.apart import worker_apart
from tests.bench.own import QUEUE, noop, wait_until_completed
from tests.bench.server import Meter

__all__ = ["pipes", "plain_jobs", "threads"]

Figures = dict[str, float]
_FRAME = b"x" * 100


def threads(_url: str, jobs: int) -> Figures:
    """Calls of a no-op in a pool of 32 threads, 32 at a time, awaited by an event loop."""

    async def run() -> Figures:
        loop = asyncio.get_running_loop()
        left = iter(range(jobs))

        async def calls() -> None:
            for _ in left:
                await loop.run_in_executor(pool, lambda: None)

        with ThreadPoolExecutor(32) as pool:
            began, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(calls() for _ in range(32)))
            return _figures(jobs, began, cpu)

    return asyncio.run(run())


def pipes(_url: str, jobs: int) -> Figures:
    """Round trips of 100 bytes through pipes to two forked processes, both busy."""
    children = [_fork_echo(), _fork_echo()]
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(jobs // 2):
        for to, _back, _pid in children:
            os.write(to, _FRAME)
        for _to, back, _pid in children:
            os.read(back, len(_FRAME))
    figures = _figures(jobs, began, cpu)
    for to, _back, pid in children:
        os.write(to, b"end")
        os.waitpid(pid, 0)
    return figures


def _fork_echo() -> tuple[int, int, int]:
    (read, to), (back, write) = os.pipe(), os.pipe()
    if pid := os.fork():
        return to, back, pid
    while len(frame := os.read(read, len(_FRAME))) == len(_FRAME):
        os.write(write, frame)
    os._exit(0)


def plain_jobs(url: str, jobs: int) -> Figures:
    """As many jobs without a flow, added in bulk and run by one worker process of 32 slots."""
    with Queue(QUEUE, url=url) as queue, Meter(url) as meter, worker_apart(url, QUEUE, noop, 32):
        queue.add("noop").wait(30)
        meter.begin()
        queue.add_bulk([NewJob("noop", {"at": number}) for number in range(jobs)])
        wait_until_completed(queue, jobs + 1)
        return meter.end().per_job(jobs)


def _figures(jobs: int, began: float, cpu: float) -> Figures:
    spent = (time.process_time() - cpu) * 1e6 / jobs
    return {"jobs_per_s": round(jobs / (time.perf_counter() - began)), "client_us": round(spent, 1)}
