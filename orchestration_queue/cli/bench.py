"""`oq server bench`: how fast this machine and this server are together."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import uuid4

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, show_json, show_table
from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.worker import AsyncActiveJob, Worker

__all__ = ["bench"]

_ALONE = 10
"""One of this many jobs is added with a separate call."""
_STARTS = 200


def bench(
    jobs: Annotated[int, typer.Option(help="No-op jobs to add and run.", min=100)] = 10_000,
    concurrency: Annotated[int, typer.Option(help="Concurrent jobs of the worker.", min=1)] = 32,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Measure this machine and the server with no-op jobs, in a temporary queue."""
    figures = asyncio.run(_measure(jobs, concurrency, url, prefix))
    if as_json:
        show_json(figures)
        return
    rows = [
        ("an exchange with the server, p50", f"{figures['exchange_ms']:.2f} ms"),
        ("add one by one, each confirmed", f"{figures['adds_per_s']:,.0f} jobs/s"),
        ("add in bulk", f"{figures['bulk_adds_per_s']:,.0f} jobs/s"),
        (f"run, {concurrency} at a time", f"{figures['jobs_per_s']:,.0f} jobs/s"),
        ("from adding to the handler's start, p50", f"{figures['start_p50_ms']:.2f} ms"),
        ("the same, p99", f"{figures['start_p99_ms']:.2f} ms"),
    ]
    show_table(("one process, no-op jobs", ""), rows)


async def _measure(jobs: int, concurrency: int, url: str | None, prefix: str) -> dict[str, float]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    async with AsyncQueue(f"oq-bench-{uuid4().hex[:8]}", url=url, prefix=prefix) as queue:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            step = progress.add_task("asking the server", total=None)

            def report(what: str) -> None:
                progress.update(step, description=what)

            try:
                return await _figures(queue, jobs, concurrency, url, prefix, report)
            finally:
                report("cleaning up")
                await queue.obliterate(force=True)


async def _figures(
    queue: AsyncQueue, jobs: int, concurrency: int, url: str | None, prefix: str, report: Callable[[str], None]
) -> dict[str, float]:
    exchanges = [await _seconds(queue.is_paused()) for _ in range(100)]
    alone = jobs // _ALONE
    report(f"adding {alone:,} jobs one by one")
    began = time.perf_counter()
    for _ in range(alone):
        await queue.add("nothing")
    adding = time.perf_counter() - began
    report(f"adding {jobs - alone:,} jobs in bulk")
    in_bulk = await _seconds(queue.add_bulk([NewJob("nothing")] * (jobs - alone)))
    report(f"running {jobs:,} jobs")
    running = await _seconds(_run(queue, jobs, concurrency, url, prefix))
    report(f"adding {_STARTS} jobs to a worker that waits for them")
    starts = sorted(await _starts(queue, url, prefix))
    return {
        "exchange_ms": statistics.median(exchanges) * 1000,
        "adds_per_s": alone / adding,
        "bulk_adds_per_s": (jobs - alone) / in_bulk,
        "jobs_per_s": jobs / running,
        "start_p50_ms": starts[len(starts) // 2] * 1000,
        "start_p99_ms": starts[len(starts) * 99 // 100] * 1000,
    }


async def _seconds(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def _run(queue: AsyncQueue, jobs: int, concurrency: int, url: str | None, prefix: str) -> None:
    """Run the waiting jobs."""
    left, ended = jobs, asyncio.Event()

    async def nothing(_: AsyncActiveJob) -> None:
        nonlocal left
        left -= 1
        if not left:
            ended.set()

    async with _run_worker(Worker(queue.name, nothing, url=url, prefix=prefix, options=_options(concurrency))):
        await ended.wait()


async def _starts(queue: AsyncQueue, url: str | None, prefix: str) -> list[float]:
    """Return the time from adding a job to its handler's start, for one job after the other."""
    started: asyncio.Queue[float] = asyncio.Queue()

    async def note(_: AsyncActiveJob) -> None:
        started.put_nowait(time.perf_counter())

    async with _run_worker(Worker(queue.name, note, url=url, prefix=prefix, options=_options(1))):
        seconds = []
        for _ in range(_STARTS):
            began = time.perf_counter()
            await queue.add("nothing")
            seconds.append(await started.get() - began)
        return seconds


def _options(concurrency: int) -> WorkerOptions:
    return WorkerOptions(concurrency=concurrency, run_schedulers=False)


@asynccontextmanager
async def _run_worker(worker: Worker) -> AsyncIterator[None]:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            try:
                yield
            finally:
                worker.stop()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
