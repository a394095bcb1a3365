"""ChasquiMQ's queues, fed and worked by this package and by the original: ``python -m tests.bench.chasquimq``.

The original needs Redis 8.6: name one in OQ_TEST_REDIS86 (it is flushed) for both to run on, else the original runs
through a proxy, which costs it a hop; the report says which. Prints JSON: medians of several runs, ours divided by the
original's. Limits: an add is one round trip; an entry of the stream costs the server about 2 us as a bare XADD.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from orchestration_queue.wires.chasquimq import (
    AsyncChasquiQueue,
    ChasquiWorker,
    ChasquiWorkerOptions,
    NewChasquiJob,
)
from tests.bench.server import server

_PROXY = """
import sys, time
from tests.chasquimq.redis86 import redis86
with redis86(sys.argv[1]) as url:
    print(url, flush=True)
    sys.stdin.read()
"""
_QUEUE = "bench"
_PER_SECOND = 200
_PAD = {"pad": "x" * 64}

Run = Callable[[str, int], Awaitable[dict[str, float]]]


@contextmanager
def _redis86(url: str) -> Iterator[str]:
    """The server that the original can use."""
    if named := os.environ.get("OQ_TEST_REDIS86"):
        yield named
        return
    command = [sys.executable, "-c", _PROXY, url.removeprefix("unix://")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        process.communicate()


def _rate(count: int, started: float) -> dict[str, float]:
    return {"per_second": round(count / (time.perf_counter() - started))}


async def _add(theirs: bool, url: str, jobs: int) -> dict[str, float]:
    async with _open(theirs, url) as queue:
        started = time.perf_counter()
        for _ in range(jobs // 5):
            await queue.add("x", _PAD)
        return _rate(jobs // 5, started)


async def _bulk(theirs: bool, url: str, jobs: int) -> dict[str, float]:
    async with _open(theirs, url) as queue:
        started = time.perf_counter()
        for _ in range(0, jobs, 500):
            await queue.add_bulk(_many(theirs, 500))
        return _rate(jobs, started)


async def _drain(theirs: bool, url: str, jobs: int) -> dict[str, float]:
    async with _open(theirs, url) as queue:
        await queue.add_bulk(_many(theirs, jobs))
    done = asyncio.Event()
    left = [jobs]

    async def work(_: Any) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    started = time.perf_counter()
    await _work(theirs, url, work, done)
    return _rate(jobs, started)


async def _latency(theirs: bool, url: str, jobs: int) -> dict[str, float]:
    count, done = jobs // 20, asyncio.Event()
    waits: list[float] = []

    async def work(job: Any) -> None:
        waits.append(time.time() - job.data["at"])
        if len(waits) == count:
            done.set()

    async def produce() -> None:
        async with _open(theirs, url) as queue:
            await queue.add("x", {"at": time.time()})
            for _ in range(count - 1):
                await asyncio.sleep(1 / _PER_SECOND)
                await queue.add("x", {"at": time.time()})

    producing = asyncio.ensure_future(produce())
    await _work(theirs, url, work, done)
    await producing
    p50, p99 = (round(quantile * 1000, 2) for quantile in _quantiles(waits))
    return {"p50_ms": p50, "p99_ms": p99}


def _quantiles(waits: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(waits[len(waits) // 10 :], n=100)  # the first wait for the worker to start
    return cuts[49], cuts[98]


def _open(theirs: bool, url: str) -> Any:
    if not theirs:
        return AsyncChasquiQueue(_QUEUE, url=url)
    import chasquimq

    return chasquimq.Queue(_QUEUE, redis_url=url)


def _many(theirs: bool, count: int) -> list[Any]:
    if theirs:
        return [{"name": "x", "data": _PAD} for _ in range(count)]
    return [NewChasquiJob("x", _PAD) for _ in range(count)]


async def _work(theirs: bool, url: str, work: Callable[[Any], Awaitable[None]], done: asyncio.Event) -> None:
    if theirs:
        import chasquimq

        worker: Any = chasquimq.Worker(_QUEUE, work, redis_url=url, concurrency=100)
        running = asyncio.ensure_future(worker.run())
        await done.wait()
        await worker.close()
    else:
        worker = ChasquiWorker(_QUEUE, work, url=url, options=ChasquiWorkerOptions(concurrency=100))
        running = asyncio.ensure_future(worker.run())
        await done.wait()
        worker.stop()
    await running


ROWS = {"add, one by one": _add, "add, 500 at a time": _bulk, "drain, 100 slots": _drain, "enqueue to start": _latency}


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.chasquimq", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs a run (default 10000)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default 3)")
    arguments = parser.parse_args()
    report: dict[str, Any] = {"original_on": os.environ.get("OQ_TEST_REDIS86", "a proxy that supplies Redis 8.6")}
    import redis

    with ExitStack() as stack:
        url = os.environ.get("OQ_TEST_REDIS86") or stack.enter_context(server())
        theirs = stack.enter_context(_redis86(url))
        client = stack.enter_context(redis.Redis.from_url(url))
        for name, run in ROWS.items():
            runs: dict[str, list[dict[str, float]]] = {"ours": [], "original": []}
            for _ in range(arguments.runs):
                for contender, measured in runs.items():
                    client.flushall()
                    is_original = contender == "original"
                    measured.append(asyncio.run(run(is_original, theirs if is_original else url, arguments.jobs)))
            median = {
                who: {figure: statistics.median(one[figure] for one in measured) for figure in measured[0]}
                for who, measured in runs.items()
            }
            ratio = {figure: round(ours / median["original"][figure], 2) for figure, ours in median["ours"].items()}
            report[name] = {"median": median, "ours_to_original": ratio, "runs": runs}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
