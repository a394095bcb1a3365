"""What a job costs by how much the server holds beside it: a line that bends would be a defect.

``python -m tests.bench.growth [--only backlog groups] [--share 0.1]`` prints JSON. Commands are the same on every
machine; microseconds are of processor time, and comparable only within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Callable
from datetime import timedelta

from orchestration_queue import Every, NewJob, Queue
from orchestration_queue.options import JobOptions, Ordering
from tests.bench.contenders import QUEUE, contender
from tests.bench.server import Meter, server

Figures = dict[str, float]
CHUNK, ADDED, DRAINED = 10_000, 1_000, 5_000
SHOWN = ("client_us", "server_us", "commands")


def _fill(queue: Queue, count: int) -> None:
    for first in range(0, count, CHUNK):
        queue.add_bulk([NewJob("noop", {"at": n}) for n in range(first, min(first + CHUNK, count))])


async def _drain(url: str, jobs: int) -> None:
    """Run a worker of 32 slots until it has started this number of jobs."""
    left, over = jobs, asyncio.Event()

    def count(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set()

    async with contender("ours").working(url, 32, count):
        await over.wait()


def _measure(url: str, queue: Queue, options: Callable[[int], JobOptions]) -> Figures:
    """Add jobs one by one, then drain some."""
    with Meter(url) as meter:
        queue.counts()
        meter.begin()
        for n in range(ADDED):
            queue.add("noop", {"at": n}, options(n))
        added = meter.end().per_job(ADDED)
        _add_in_bulk(queue, options)
        meter.begin()
        asyncio.run(_drain(url, DRAINED))
        drained = meter.end().per_job(DRAINED)
    return {f"add_{name}": added[name] for name in SHOWN} | {f"drain_{name}": drained[name] for name in SHOWN}


def _add_in_bulk(queue: Queue, options: Callable[[int], JobOptions]) -> None:
    queue.add_bulk([NewJob("noop", {"at": n}, options(n)) for n in range(DRAINED)])


def _plain(_: int) -> JobOptions:
    return JobOptions()


def backlog(url: str, count: int) -> Figures:
    """Plain jobs that wait."""
    with Queue(QUEUE, url=url) as queue:
        _fill(queue, count)
        return _measure(url, queue, _plain)


def finished(url: str, count: int) -> Figures:
    """Completed jobs that are kept."""
    with Queue(QUEUE, url=url) as queue:
        _fill(queue, count)
        asyncio.run(_drain(url, count))
        return _measure(url, queue, _plain)


def schedules(url: str, count: int) -> Figures:
    """Schedules that are not due."""
    with Queue(QUEUE, url=url) as queue:
        for n in range(count):
            queue.schedulers.upsert(f"s{n}", Every(timedelta(hours=1)))
        return _measure(url, queue, _plain)


def groups(url: str, count: int) -> Figures:
    """Ordering groups, into which the jobs are divided."""
    with Queue(QUEUE, url=url) as queue:
        return _measure(url, queue, lambda n: JobOptions(ordering=Ordering(key=f"g{n % count}")))


MEASURES: dict[str, tuple[Callable[[str, int], Figures], tuple[int, ...]]] = {
    "backlog": (backlog, (1_000, 10_000, 100_000, 1_000_000)),
    "finished": (finished, (1_000, 100_000)),
    "schedules": (schedules, (100, 10_000)),
    "groups": (groups, (10, 100, 1_000)),
}
"""What is measured, and at which numbers of them."""


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument("--share", type=float, default=1.0, help="of the largest number of each (default 1)")
    arguments = parser.parse_args()
    logging.getLogger("orchestration_queue").setLevel(logging.ERROR)
    report: dict[str, object] = {}
    for name in arguments.only:
        measure, counts = MEASURES[name]
        found = {}
        for count in [count for count in counts if count <= counts[-1] * arguments.share]:
            print(f"{name}: {count:,}", file=sys.stderr)
            with server() as url:
                found[count] = measure(url, count)
        report[name] = {"what": measure.__doc__, "at": found}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
