"""How late an idle worker starts what is due, and stops what is cancelled.

``python -m tests.bench.lateness [--jobs 10000]`` prints JSON: for each kind p50 and p99 in milliseconds with the limit
of p99. Delayed jobs, retries and schedules are late against the time at which they are due; LIFO and prioritized jobs
and cancels against the call that added or cancelled them. Each of these comes to a worker that is idle. The jobs of the
``backlog`` fall due over ten seconds. Clients and worker share one process, so a busy machine shows in all figures.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.schedules import Every
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.bench.server import server

IDLE_MS, BACKLOG_MS, CANCEL_MS = 10.0, 25.0, 100.0
SPREAD_S = 10.0
CHUNK = 1000
PATIENCE_S = 60.0

Lateness = list[float]


class Clock:
    """What the handler notes: when each job started, and when one was stopped, epoch seconds."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[tuple[AsyncActiveJob, float]] = asyncio.Queue()
        self.stopped: asyncio.Queue[float] = asyncio.Queue()

    async def __call__(self, job: AsyncActiveJob) -> None:
        """Note the start; fail what will be retried, and wait for the end of what will be cancelled."""
        self.started.put_nowait((job, time.time()))
        if job.name == "retry" and job.attempt == 1:
            raise ValueError("again")
        if job.name == "endless":
            try:
                await asyncio.sleep(PATIENCE_S)
            finally:
                self.stopped.put_nowait(time.time())

    async def next_start(self) -> float:
        """Return when the next job started."""
        return (await asyncio.wait_for(self.started.get(), PATIENCE_S))[1]


@asynccontextmanager
async def at_work(url: str, name: str, options: WorkerOptions) -> AsyncIterator[tuple[AsyncQueue, Clock, Worker]]:
    """A queue and a worker that waits for its first job."""
    clock = Clock()
    worker = Worker(name, clock, url=url, options=options)
    running = asyncio.ensure_future(worker.run())
    async with AsyncQueue(name, url=url) as queue:
        await fall_asleep(worker)
        yield queue, clock, worker
    worker.stop()
    await running


async def fall_asleep(worker: Worker) -> None:
    """Wait until the worker waits at the server, at a random moment of its rounds."""
    while not worker.is_listening or worker.running:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await asyncio.sleep(random.uniform(0.0, 0.1))


async def added(queue: AsyncQueue, clock: Clock, options: JobOptions) -> float:
    """How late one job starts after its addition, or after its delay."""
    began = time.time()
    await queue.add("work", options=options)
    due = began + (options.delay.total_seconds() if isinstance(options.delay, timedelta) else 0.0)
    return await clock.next_start() - due


async def retried(queue: AsyncQueue, clock: Clock) -> float:
    """How late a second attempt starts after its backoff, which begins when the first has failed."""
    await queue.add("retry", options=JobOptions(attempts=2, backoff={"type": "fixed", "delay": 0.1}))
    failed = await clock.next_start()
    return await clock.next_start() - failed - 0.1


async def cancelled(queue: AsyncQueue, clock: Clock) -> float:
    """How late a running job is stopped."""
    job = await queue.add("endless")
    await clock.next_start()
    began = time.time()
    await job.cancel()
    return await asyncio.wait_for(clock.stopped.get(), PATIENCE_S) - began


async def scheduled(queue: AsyncQueue, clock: Clock) -> float:
    """How late the first run of a schedule starts."""
    await queue.schedulers.upsert("often", Every(timedelta(seconds=1)))
    (job, started) = await asyncio.wait_for(clock.started.get(), PATIENCE_S)
    await queue.schedulers.remove("often")
    return started - int(job.id.rpartition(".")[2]) / 1000


async def repeat(url: str, name: str, rounds: int, measure: Callable[..., Awaitable[float]], *args: Any) -> Lateness:
    """Measure again and again, each time with a worker that is asleep."""
    async with at_work(url, name, WorkerOptions()) as (queue, clock, worker):
        late = []
        for _ in range(rounds):
            await fall_asleep(worker)
            late.append(await measure(queue, clock, *args))
    return late


async def backlog(url: str, jobs: int) -> Lateness:
    """How late delayed jobs start that fall due evenly over ten seconds."""
    async with at_work(url, "backlog", WorkerOptions(concurrency=100)) as (queue, clock, _):
        first = time.time() + 5.0 + jobs / 2000
        for start in range(0, jobs, CHUNK):
            now = time.time()
            dues = [first + SPREAD_S * n / jobs for n in range(start, min(jobs, start + CHUNK))]
            await queue.add_bulk([NewJob("work", due, JobOptions(delay=due - now)) for due in dues])
        if time.time() > first:
            print("the first jobs were due before the last was added", file=sys.stderr)
        ends = [await asyncio.wait_for(clock.started.get(), PATIENCE_S) for _ in range(jobs)]
    return [started - float(job.data) for job, started in ends]


def figures(late: Lateness, limit_ms: float) -> dict[str, float]:
    """Median and 99th percentile, in milliseconds."""
    ordered = sorted(1000 * each for each in late)
    p50, p99 = (ordered[min(len(ordered) - 1, len(ordered) * part // 100)] for part in (50, 99))
    return {"count": len(ordered), "p50_ms": round(p50, 1), "p99_ms": round(p99, 1), "limit_p99_ms": limit_ms}


async def measure(url: str, rounds: int, jobs: int) -> dict[str, dict[str, float]]:
    """Measure every kind."""
    additions = {
        "delay": JobOptions(delay=timedelta(seconds=0.1)),
        "lifo": JobOptions(lifo=True),
        "priority": JobOptions(priority=3),
    }
    report = {
        name: figures(await repeat(url, name, rounds, added, options), IDLE_MS) for name, options in additions.items()
    }
    report["retry"] = figures(await repeat(url, "retry", rounds, retried), IDLE_MS)
    report["cancel"] = figures(await repeat(url, "cancel", rounds, cancelled), CANCEL_MS)
    report["first Every(1)"] = figures(await repeat(url, "every", max(1, rounds // 10), scheduled), IDLE_MS)
    report[f"backlog of {jobs:,} over {SPREAD_S:g} s"] = figures(await backlog(url, jobs), BACKLOG_MS)
    return report


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lateness", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="jobs of each kind, one at a time (default 100)")
    parser.add_argument("--jobs", type=int, default=10_000, help="delayed jobs of the backlog (default 10000)")
    arguments = parser.parse_args()
    logging.getLogger("orchestration_queue.worker").setLevel(logging.CRITICAL)  # retries have something to tell
    gc.freeze()  # as run_workers() does
    with server() as url:
        print(json.dumps(asyncio.run(measure(url, arguments.rounds, arguments.jobs)), indent=2))


if __name__ == "__main__":
    main()
