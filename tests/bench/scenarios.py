"""What is measured: enqueueing, draining, and the time from one to the other."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta

from orchestration_queue.client import AsyncQueue, NewJob, Queue
from orchestration_queue.options import WorkerOptions
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.bench.server import Meter

__all__ = ["SCENARIOS", "Scenario", "drain_here"]

QUEUE = "bench"
Figures = dict[str, float]
Scenario = Callable[[str, Meter, int], Figures]


def enqueue_one_by_one(url: str, meter: Meter, jobs: int) -> Figures:
    """One job a call, each confirmed before the next, synchronous client."""
    with Queue(QUEUE, url=url) as queue:
        queue.counts()
        with meter.cost() as cost:
            for number in range(jobs):
                queue.add("noop", {"n": number})
    return cost[0].per_job(jobs)


def enqueue_bulk(url: str, meter: Meter, jobs: int) -> Figures:
    """All jobs in one call of the client."""
    with Queue(QUEUE, url=url) as queue:
        queue.counts()
        new = [NewJob("noop", {"n": number}) for number in range(jobs)]
        with meter.cost() as cost:
            queue.add_bulk(new)
    return cost[0].per_job(jobs)


async def drain_here(url: str, concurrency: int, jobs: int) -> Figures:
    """Run a worker in this process until it has handled so many jobs and told of all."""
    done = 0
    all_done = asyncio.Event()

    async def noop(_: AsyncActiveJob) -> None:
        nonlocal done
        done += 1
        if done == jobs:
            all_done.set()

    worker = Worker(QUEUE, noop, url=url, options=WorkerOptions(concurrency=concurrency))
    meter = Meter(url)
    with meter.cost() as cost:
        running = asyncio.ensure_future(worker.run())
        await all_done.wait()
        worker.stop()
        await running
    return cost[0].per_job(jobs)


def _drain(concurrency: int) -> Scenario:
    def drain(url: str, meter: Meter, jobs: int) -> Figures:
        enqueue_bulk(url, meter, jobs)
        code = f"""
import asyncio, json
from tests.bench.scenarios import drain_here
print(json.dumps(asyncio.run(drain_here({url!r}, {concurrency}, {jobs}))))
"""
        figures: Figures = json.loads(subprocess.check_output([sys.executable, "-c", code]))
        return figures

    drain.__doc__ = f"No-op jobs through one worker process, {concurrency} at a time, until all are told."
    return drain


def latency(url: str, meter: Meter, jobs: int, rate: int = 200) -> Figures:
    """From the producer's call to the handler's start, at 200 jobs a second, producer and worker on one loop."""
    del meter
    jobs = min(jobs, 5 * rate)
    waits: list[float] = []

    async def handler(job: AsyncActiveJob) -> None:
        waits.append(time.perf_counter() - job.data["at"])

    async def run() -> None:
        worker = Worker(QUEUE, handler, url=url, options=WorkerOptions(concurrency=10))
        running = asyncio.ensure_future(worker.run())
        async with AsyncQueue(QUEUE, url=url) as queue:
            start = time.perf_counter()
            for number in range(jobs):
                await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
                last = await queue.add("noop", {"at": time.perf_counter()})
            await last.wait(timedelta(seconds=10))
        worker.stop()
        await running

    asyncio.run(run())
    cuts = statistics.quantiles(waits, n=100)
    return {"p50_ms": round(cuts[49] * 1e3, 3), "p90_ms": round(cuts[89] * 1e3, 3), "p99_ms": round(cuts[98] * 1e3, 3)}


SCENARIOS: dict[str, Scenario] = {
    "enqueue_one_by_one": enqueue_one_by_one,
    "enqueue_bulk": enqueue_bulk,
    "drain_1": _drain(1),
    "drain_32": _drain(32),
    "drain_100": _drain(100),
    "latency": latency,
}
