"""Durable steps: how many a handler makes per second, and what each costs its worker.

``python -m tests.bench.steps [--steps 5000]`` prints JSON: for a coroutine and a function in a thread, steps per second
when they run and when a later attempt gets their stored results, and microseconds of the worker's processor per step.
The limit is one HSET per step on the same connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from orchestration_queue.client import AsyncQueue
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Worker
from tests.bench.server import server

RESULT = {"path": "s3://bucket/pages/000001.parquet", "rows": 1000}
TWICE = JobOptions(attempts=2, backoff=Backoff(delay=0.001))
PATIENCE_S = 300.0

Figures = dict[str, dict[str, float]]


class Meter:
    """Notes what a block of calls took."""

    def __init__(self, figures: Figures, count: int) -> None:
        self.figures, self.count = figures, count

    def note(self, name: str, began: tuple[float, float]) -> None:
        wall_s, cpu_s = time.perf_counter() - began[0], time.process_time() - began[1]
        self.figures[name] = {
            "per_second": round(self.count / wall_s),
            "cpu_us": round(cpu_s / self.count * 1_000_000, 1),
        }


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def handlers(meter: Meter) -> dict[str, Callable[[Any], Any]]:
    """Return the handlers by what they measure."""

    async def on_loop(job: AsyncActiveJob) -> None:
        began = now()
        for number in range(meter.count):
            await job.step(f"page-{number}", lambda: RESULT)
        meter.note("coroutine" if job.attempt == 1 else "coroutine, stored", began)
        if job.attempt == 1:
            raise ValueError("once more")

    def in_thread(job: ActiveJob) -> None:
        began = now()
        for number in range(meter.count):
            job.step(f"page-{number}", lambda: RESULT)
        meter.note("thread" if job.attempt == 1 else "thread, stored", began)
        if job.attempt == 1:
            raise ValueError("once more")

    async def limit(job: AsyncActiveJob) -> None:
        began = now()
        for number in range(meter.count):
            call = Call("HSET", (job.ref.keys.steps(job.id),), (f"r:page-{number}", json.dumps(RESULT)))
            await job._connection.execute(call)
        meter.note("HSET", began)

    return {"coroutine": on_loop, "thread": in_thread, "HSET": limit}


async def measure(url: str, count: int) -> Figures:
    """Measure each handler with a worker of its own."""
    figures: Figures = {}
    for name, handler in handlers(Meter(figures, count)).items():
        async with AsyncQueue(f"bench-{name}", url=url) as queue:
            worker = Worker(queue.name, handler, url=url)
            running = asyncio.ensure_future(worker.run())
            await (await queue.add("work", options=TWICE)).wait(PATIENCE_S)
            worker.stop()
            await running
    return figures


def main() -> int:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5000)
    count = parser.parse_args().steps
    logging.disable(logging.WARNING)
    with server() as url:
        print(json.dumps(asyncio.run(measure(url, count)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
