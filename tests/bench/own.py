"""What no peer is measured in: an idle worker, long queues, many waiters, memory, and what each kind of handler costs.

``python -m tests.bench.own`` prints JSON; ``memory`` alone takes minutes, and only runs when it is asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from orchestration_queue.client import AsyncQueue, NewJob, Queue
from orchestration_queue.options import JobOptions, Retention, WorkerOptions
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Worker, run_workers, sandboxed
from tests.bench.apart import worker_apart
from tests.bench.server import Meter, server
from tests.waiting import wait_until_sync

Figures = dict[str, float]
QUEUE = "bench"
RUNS = 3
_MOST_WAIT_S = 60
_KEEP_FEW = JobOptions(remove_on_complete=Retention(count=100))


async def noop(_: AsyncActiveJob) -> None:
    """Do nothing."""


class Countdown:
    """Reports when this number of jobs has started."""

    def __init__(self, jobs: int) -> None:
        self._left = jobs
        self.over = asyncio.Event()

    def one(self) -> None:
        """One more has started."""
        self._left -= 1
        if not self._left:
            self.over.set()


@asynccontextmanager
async def working(url: str, handler: Any, concurrency: int = 32) -> AsyncIterator[Worker]:
    """A worker; it has told every outcome when the block is left."""
    worker = Worker(QUEUE, handler, url=url, options=WorkerOptions(concurrency=concurrency))
    running = asyncio.ensure_future(worker.run())
    yield worker
    worker.stop()
    await running


def idle(url: str, _jobs: int) -> Figures:
    """Commands and reads a second of a worker that has nothing to do, over ten seconds."""

    async def wait() -> Figures:
        with Meter(url) as meter:
            async with working(url, lambda _: None) as worker:
                while not worker.is_listening:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                await asyncio.sleep(1)
                meter.begin()
                await asyncio.sleep(10)
                cost = meter.end()
        return {
            "commands_per_s": round(cost.commands / cost.seconds, 2),
            "reads_per_s": round(cost.reads / cost.seconds, 2),
            "client_ms_per_s": round(cost.client_us / cost.seconds / 1000, 2),
        }

    return asyncio.run(wait())


def _added_one_by_one(url: str, jobs: int) -> Figures:
    with Queue(QUEUE, url=url) as queue, Meter(url) as meter:
        queue.counts()
        meter.begin()
        for number in range(jobs):
            queue.add("noop", {"at": number})
        return meter.end().per_job(jobs)


def _fill(url: str, jobs: int) -> None:
    with Queue(QUEUE, url=url) as queue:
        for first in range(0, jobs, 10_000):
            count = min(10_000, jobs - first)
            queue.add_bulk([NewJob("noop", {"at": first + number}) for number in range(count)])


async def _drained(url: str, jobs: int, handler_of: Callable[[Countdown], Any], concurrency: int = 32) -> Figures:
    countdown = Countdown(jobs)
    with Meter(url) as meter:
        meter.begin()
        async with working(url, handler_of(countdown), concurrency):
            await countdown.over.wait()
        return meter.end().per_job(jobs)


def _coroutine(countdown: Countdown) -> Any:
    async def noop(_: AsyncActiveJob) -> None:
        countdown.one()

    return noop


def _task(countdown: Countdown) -> Any:
    tasks = Tasks()

    @tasks.task
    async def noop(at: int) -> None:
        assert at >= 0
        countdown.one()

    return tasks


@sandboxed
def in_a_sandbox(job: ActiveJob) -> None:
    """Do nothing, in another process."""


def long_queue(url: str, jobs: int) -> Figures:
    """One-by-one adds and a drain with 100,000 jobs waiting, as parts of what they are with none."""
    rates: Figures = {}
    for waiting in (0, 100_000):
        Meter(url).reset()
        _fill(url, waiting)
        rates[f"add_per_s_{waiting}"] = _added_one_by_one(url, jobs)["jobs_per_s"]
        rates[f"drain_server_us_{waiting}"] = asyncio.run(_drained(url, jobs, _coroutine))["server_us"]
    return rates


def typed_tasks(url: str, jobs: int) -> Figures:
    """Typed tasks: arguments validated, a scope for each job."""
    _fill(url, jobs)
    return asyncio.run(_drained(url, jobs, _task))


def sandboxes(url: str, jobs: int) -> Figures:
    """Sandboxed handlers, in two processes, without their start."""

    async def run() -> Figures:
        async with AsyncQueue(QUEUE, url=url) as queue, working(url, in_a_sandbox, 2):
            await asyncio.gather(*[job.wait() for job in await queue.add_bulk([NewJob("noop", {})] * 20)])
            with Meter(url) as meter:
                meter.begin()
                await queue.add_bulk([NewJob("noop", {})] * jobs)
                while (await queue.counts()).completed < jobs + 20:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                return meter.end().per_job(jobs)

    return asyncio.run(run())


def processes(url: str, jobs: int) -> Figures:
    """No-op jobs through ``run_workers(processes=2)`` with 100 slots each, from the queue's resumption to the last."""
    context = multiprocessing.get_context("spawn")
    with Queue(QUEUE, url=url) as queue, Meter(url) as meter:
        queue.pause()
        _fill(url, jobs)
        supervisor = context.Process(target=_run_workers, args=(url, 2))
        supervisor.start()
        wait_until_sync(lambda: len(queue.workers()) == 2, "two workers", _MOST_WAIT_S)
        meter.begin()
        queue.resume()
        wait_until_completed(queue, jobs)
        cost = meter.end().per_job(jobs)
        supervisor.terminate()
        supervisor.join()
    del cost["client_us"]  # of this process, which only waits
    return cost


def _run_workers(url: str, count: int) -> None:
    run_workers(Worker(QUEUE, noop, url=url, options=WorkerOptions(concurrency=100)), processes=count)


def wait_until_completed(queue: Queue, jobs: int) -> None:
    """Wait until this number of jobs has completed."""
    wait_until_sync(lambda: queue.counts().completed >= jobs, f"{jobs} completed jobs", _MOST_WAIT_S)


def waiters(url: str, _jobs: int) -> Figures:
    """A thousand calls of ``job.wait`` at once, each notified of its own job's end; the connections this takes."""

    async def run() -> Figures:
        async with AsyncQueue(QUEUE, url=url) as queue:
            jobs = await queue.add_bulk([NewJob("noop", {})] * 1000)
            waits = [asyncio.ensure_future(job.wait()) for job in jobs]
            await asyncio.sleep(0.2)
            with Meter(url) as meter:
                connections = meter.connections()
                started = time.perf_counter()
                async with working(url, _coroutine(Countdown(10**9))):
                    await asyncio.gather(*waits)
                    seconds = time.perf_counter() - started
        return {"connections": connections, "seconds_from_worker_start": round(seconds, 3)}

    return asyncio.run(run())


def memory(url: str, jobs: int) -> Figures:
    """What a worker of 100 places holds, in MiB, after each tenth of the jobs; they are not kept."""
    figures: Figures = {}
    part, chunk = jobs // 10, [NewJob("noop", {"at": number}, _KEEP_FEW) for number in range(1000)]
    with Queue(QUEUE, url=url) as queue, worker_apart(url, QUEUE, noop, 100) as resident:
        for done in range(part, jobs + 1, part):
            for _ in range(0, part, len(chunk)):
                queue.add_bulk(chunk)
            while queue.count():
                time.sleep(0.2)
            figures[f"after_{done}"] = resident("VmRSS")
            print(f"memory: {done} jobs, {figures[f'after_{done}']} MiB", file=sys.stderr)
    return figures


SCENARIOS: dict[str, Callable[[str, int], Figures]] = {
    scenario.__name__: scenario for scenario in (idle, long_queue, typed_tasks, sandboxes, processes, waiters, memory)
}


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.own", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs a run (default 10000)")
    parser.add_argument("--only", nargs="*", choices=list(SCENARIOS), default=[n for n in SCENARIOS if n != "memory"])
    arguments = parser.parse_args()
    report: dict[str, object] = {}
    with server() as url, Meter(url) as meter:
        for name in arguments.only:
            runs: list[Figures] = []
            for _ in range(1 if name in ("idle", "memory") else RUNS):
                meter.reset()
                runs.append(SCENARIOS[name](url, arguments.jobs))
            medians = {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
            report[name] = {"what": SCENARIOS[name].__doc__, "median": medians, "runs": runs}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
