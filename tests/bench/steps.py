"""Durable steps: how many a handler makes per second, and what each costs its worker.

``python -m tests.bench.steps [--steps 5000]`` prints JSON: for a coroutine and a function in a thread, steps per second
when they run and when a later attempt gets their stored results, and microseconds of the worker's processor per step.
The limit is one HSET per step on the same connection. ``call`` is a hundred tasks called one after the other, and
``gather`` a thousand called together, all run by the same worker with ten slots.

``--dbos PYTHON``, an interpreter that has ``dbos`` installed, adds a tenth as many steps of DBOS's workflows, on SQLite
as it comes, and on PostgreSQL without fsync where Debian's is installed. Steps follow each other, so what one takes is
the inverse of their rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestration_queue.client import AsyncQueue
from orchestration_queue.flows import Node
from orchestration_queue.options import Backoff, JobOptions, WorkerOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Worker
from tests.bench.server import server
from tests.dagster.stores import postgres

RESULT = {"path": "s3://bucket/pages/000001.parquet", "rows": 1000}
TWICE = JobOptions(attempts=2, backoff=Backoff(delay=0.001))
CALLS, GATHERED = 100, 1000
PATIENCE_S = 300.0

Figures = dict[str, dict[str, float]]


class Meter:
    """Notes what a block of calls took."""

    def __init__(self, figures: Figures, count: int) -> None:
        self.figures, self.count = figures, count
        self.began: dict[str, tuple[float, float]] = {}
        """When jobs that run several times began, by queue."""

    def note(self, name: str, began: tuple[float, float], count: int | None = None) -> None:
        wall_s, cpu_s = time.perf_counter() - began[0], time.process_time() - began[1]
        count = count or self.count
        self.figures[name] = {
            "per_second": round(count / wall_s),
            "cpu_us": round(cpu_s / count * 1_000_000, 1),
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

    async def calls(job: AsyncActiveJob) -> None:
        meter.began.setdefault(job.queue, now())
        for number in range(CALLS):
            await job.call(f"part-{number}", "part")
        meter.note("call", meter.began[job.queue], CALLS)

    async def gathers(job: AsyncActiveJob) -> None:
        began, count = meter.began.setdefault(job.queue, now()), GATHERED
        await job.gather(*(Node(f"part-{number}", "part") for number in range(count)))
        meter.note("gather", began, count)

    return {"coroutine": on_loop, "thread": in_thread, "HSET": limit, "call": calls, "gather": gathers}


class Parts:
    """A router of one handler, and of one that does nothing for the jobs that it calls."""

    def __init__(self, handler: Callable[[Any], Any]) -> None:
        self._handler = handler

    def handler(self, name: str) -> Callable[[Any], Any]:
        return self._handler if name == "work" else _do_nothing


async def _do_nothing(_: AsyncActiveJob) -> None: ...


async def measure(url: str, count: int) -> Figures:
    """Measure each handler with a worker of its own."""
    figures: Figures = {}
    for name, handler in handlers(Meter(figures, count)).items():
        async with AsyncQueue(f"bench-{name}", url=url) as queue:
            worker = Worker(queue.name, Parts(handler), url=url, options=WorkerOptions(concurrency=10))
            running = asyncio.ensure_future(worker.run())
            await (await queue.add("work", options=TWICE)).wait(PATIENCE_S)
            worker.stop()
            await running
    return figures


def measure_dbos(python: str, count: int) -> Figures:
    """Measure DBOS with another interpreter, on each database that there is."""
    script = Path(__file__).with_name("steps_dbos.py")
    figures: Figures = {}

    def note(database: str, url: str) -> None:
        command = [python, "-P", str(script), url, str(count)]
        found: Figures = json.loads(subprocess.check_output(command, timeout=PATIENCE_S))
        figures.update({f"dbos, {database}, {name}": values for name, values in found.items()})

    with tempfile.TemporaryDirectory() as folder:
        note("sqlite", f"sqlite:///{folder}/steps.sqlite")
    with postgres() as database:
        if database is not None:
            note("postgresql", database.url.replace("+psycopg2", ""))
    return figures


def main() -> int:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--dbos", metavar="PYTHON", help="an interpreter that has dbos installed")
    arguments = parser.parse_args()
    count: int = arguments.steps
    logging.disable(logging.WARNING)
    with server() as url:
        figures = asyncio.run(measure(url, count))
    if arguments.dbos:
        figures |= measure_dbos(arguments.dbos, count // 10)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
