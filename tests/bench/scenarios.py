"""What any contender is measured in: enqueueing, draining, and the time from one to the other."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.bench.contenders import contender
from tests.bench.server import Meter

__all__ = ["RATE", "Figures", "drain", "enqueue_bulk", "enqueue_one_by_one", "latency", "offered"]

Figures = dict[str, float]

RATE = 200
OFFERED_RATE = 10_000
_WARM_UP = 50
_TICK_S = 0.0005


def enqueue_one_by_one(name: str, url: str, jobs: int) -> Figures:
    """One job a call, each confirmed before the next."""
    return _enqueue(url, jobs, contender(name).enqueue_one_by_one)


def enqueue_bulk(name: str, url: str, jobs: int) -> Figures:
    """All jobs at once, in the fastest way the client has."""
    return _enqueue(url, jobs, contender(name).enqueue_bulk)


def _enqueue(url: str, jobs: int, enqueue: Callable[[str, int, Callable[[], object]], None]) -> Figures:
    enqueue(url, _WARM_UP, lambda: None)
    with Meter(url) as meter:
        enqueue(url, jobs, meter.begin)
        return meter.end().per_job(jobs)


def drain(name: str, url: str, jobs: int, concurrency: int) -> Figures:
    """No-op jobs through one worker in this process, from its start until the outcomes of all are stored."""
    contender(name.partition(":")[0]).enqueue_bulk(url, jobs, lambda: None)
    return asyncio.run(_drain(name, url, jobs, concurrency))


async def _drain(name: str, url: str, jobs: int, concurrency: int) -> Figures:
    left = jobs
    all_started, loop, counting = asyncio.Event(), asyncio.get_running_loop(), threading.Lock()

    def count(_: object) -> None:
        nonlocal left
        with counting:  # some contenders run handlers in threads
            left -= 1
            if not left:
                loop.call_soon_threadsafe(all_started.set)

    with Meter(url) as meter:
        meter.begin()
        async with contender(name).working(url, concurrency, count) as settle:
            await all_started.wait()
            await settle()
            return meter.end().per_job(jobs)


class Waits:
    """A handler that notes how long each job waited since the time in its data; 0 is a warm-up's, and left out."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._waits: list[float] = []
        self._loop = asyncio.get_running_loop()  # some contenders run handlers in threads
        self.all_started = asyncio.Event()
        self.warm = asyncio.Event()

    def __call__(self, data: dict[str, float]) -> None:
        """Note one."""
        if not data["at"]:
            self._loop.call_soon_threadsafe(self.warm.set)
            return
        self._waits.append(time.monotonic() - data["at"])
        if len(self._waits) == self._jobs:
            self._loop.call_soon_threadsafe(self.all_started.set)

    def figures(self) -> Figures:
        """Return the quantiles, in milliseconds."""
        cuts = statistics.quantiles(self._waits, n=100)
        return {name: round(cuts[cut] * 1e3, 3) for name, cut in (("p50_ms", 49), ("p90_ms", 89), ("p99_ms", 98))}


def latency(name: str, url: str, jobs: int, rate: int = RATE) -> Figures:
    """From the producer's call to the handler's start, at a rate in jobs a second, producer and worker on one loop."""
    return asyncio.run(_latency(name, url, jobs, rate))


async def _latency(name: str, url: str, jobs: int, rate: int) -> Figures:
    waits = Waits(jobs)
    loop = asyncio.get_running_loop()
    queue = contender(name)
    async with queue.producing(url) as produce, queue.working(url, 10, waits) as settle:
        start = loop.time()
        for number in range(-_WARM_UP, jobs):
            await asyncio.sleep(max(0.0, start + (number + _WARM_UP) / rate - loop.time()))
            await produce({"at": time.monotonic() if number >= 0 else 0})
        await waits.all_started.wait()
        await settle()  # some end badly in the middle of a job
    return waits.figures()


def offered(name: str, url: str, jobs: int) -> Figures:
    """From when a job was due to be sent to the handler's start, at 10,000 jobs a second from another process.

    The producer sends what is due and waits for no worker. A producer or worker that falls behind shows in the figures,
    because they count from the time at which a job was due, and not from the call that sent it.
    """
    return asyncio.run(_offered(name, url, jobs))


async def _offered(name: str, url: str, jobs: int) -> Figures:
    waits = Waits(jobs)
    producer = multiprocessing.get_context("spawn").Process(target=_offer, args=(name, url, jobs), daemon=True)
    with Meter(url) as meter:
        async with contender(name).working(url, 100, waits):
            producer.start()
            await waits.warm.wait()
            meter.begin()
            await waits.all_started.wait()
            cost = meter.end().per_job(jobs)
    producer.join()
    return waits.figures() | {figure: cost[figure] for figure in ("client_us", "server_us", "commands")}


def _offer(name: str, url: str, jobs: int) -> None:
    queue: Any = contender(name)
    with queue.offering(url) as offer:
        offer([{"at": 0}] * _WARM_UP)
        start = time.monotonic() + 0.3
        sent = 0
        while sent < jobs:
            due = min(jobs, int((time.monotonic() - start) * OFFERED_RATE) + 1)
            if due > sent:
                offer([{"at": start + number / OFFERED_RATE} for number in range(sent, due)])
                sent = due
            else:
                time.sleep(_TICK_S)


drain_1, drain_10, drain_32, drain_100 = (partial(drain, concurrency=slots) for slots in (1, 10, 32, 100))
