"""What is measured: enqueueing, draining, and the time from one to the other. Each for any contender."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from tests.bench.contenders import contender
from tests.bench.server import Meter

__all__ = ["SCENARIOS", "Figures", "Scenario"]

Figures = dict[str, float]
Scenario = Callable[[str, str, int], Figures]
"""Contender, URL and number of jobs in; figures out."""

RATE = 200


def enqueue_one_by_one(name: str, url: str, jobs: int) -> Figures:
    """One job a call, each confirmed before the next."""
    queue = contender(name)
    with Meter(url) as meter:
        queue.enqueue_one_by_one(url, jobs, meter.begin)
        return meter.end().per_job(jobs)


def enqueue_bulk(name: str, url: str, jobs: int) -> Figures:
    """All jobs at once, in the fastest way the client has."""
    queue = contender(name)
    with Meter(url) as meter:
        queue.enqueue_bulk(url, jobs, meter.begin)
        return meter.end().per_job(jobs)


async def _drain(name: str, url: str, concurrency: int, jobs: int) -> Figures:
    left = jobs
    all_started = asyncio.Event()

    def count(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_started.set()

    queue = contender(name)
    with Meter(url) as meter:
        meter.begin()
        async with queue.working(url, concurrency, count):
            await all_started.wait()
        return meter.end().per_job(jobs)


def _drained(concurrency: int) -> Scenario:
    def drain(name: str, url: str, jobs: int) -> Figures:
        contender(name).enqueue_bulk(url, jobs, lambda: None)
        arguments = [name, url, str(concurrency), str(jobs)]
        figures: Figures = json.loads(
            subprocess.check_output([sys.executable, "-m", "tests.bench.scenarios", *arguments])
        )
        return figures

    drain.__doc__ = (
        f"No-op jobs through one worker process, {concurrency} at a time, from its start until all are told."
    )
    return drain


async def _latency(name: str, url: str, jobs: int) -> Figures:
    waits: list[float] = []
    loop = asyncio.get_running_loop()
    all_started = asyncio.Event()

    def note(data: dict[str, float]) -> None:
        waits.append(time.perf_counter() - data["at"])
        if len(waits) == jobs:
            all_started.set()

    queue = contender(name)
    async with queue.producing(url) as produce, queue.working(url, 10, note):
        start = loop.time()
        for number in range(jobs):
            await asyncio.sleep(max(0.0, start + number / RATE - loop.time()))
            await produce({"at": time.perf_counter()})
        await all_started.wait()
    cuts = statistics.quantiles(waits, n=100)
    return {name: round(cuts[cut] * 1e3, 3) for name, cut in (("p50_ms", 49), ("p90_ms", 89), ("p99_ms", 98))}


def latency(name: str, url: str, jobs: int) -> Figures:
    """From the producer's call to the handler's start, at 200 jobs a second, producer and worker on one loop."""
    return asyncio.run(_latency(name, url, min(jobs, 5 * RATE)))


SCENARIOS: dict[str, Scenario] = {
    "enqueue_one_by_one": enqueue_one_by_one,
    "enqueue_bulk": enqueue_bulk,
    "drain_1": _drained(1),
    "drain_32": _drained(32),
    "drain_100": _drained(100),
    "latency": latency,
}


if __name__ == "__main__":
    who, where, places, count = sys.argv[1:]
    print(json.dumps(asyncio.run(_drain(who, where, int(places), int(count)))))
