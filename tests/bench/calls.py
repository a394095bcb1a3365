"""How much of the package one call runs through: calls of its functions, functions, and files.

``python -m tests.bench.calls`` prints JSON. Counted by the interpreter's profiler, after a first call that imports and
connects; the numbers are the same on every machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from orchestration_queue import AsyncQueue, Dag, FlowProducer, Node, Queue, Worker
from tests.bench.server import server

PACKAGE: Final = str(Path(sys.modules[Queue.__module__.partition(".")[0]].__file__ or "").parent)
GOALS: Final = {"add": (35, 30, 10), "round_trip": (300, 100, 25), "flow_of_3": (200, 80, 15)}
"""Calls, functions and files that each should need at most."""


class Count:
    """The calls of the package's functions while it counts."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, int]] = Counter()

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            self.calls[code.co_filename, code.co_qualname, code.co_firstlineno] += 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count in this thread and in those that start meanwhile."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def figures(self, what: str, jobs: int = 1) -> dict[str, float]:
        """Return what was counted, for each job, and the goal beside it."""
        calls, functions, files = GOALS[what]
        return {
            "calls": round(self.calls.total() / jobs),
            "calls_goal": calls,
            "functions": len(self.calls),
            "functions_goal": functions,
            "files": len({file for file, _, _ in self.calls}),
            "files_goal": files,
        }


def count_add(url: str) -> dict[str, float]:
    """Count one ``queue.add``."""
    count = Count()
    with Queue("calls-add", url=url) as queue:
        queue.add("task", {"n": 1})
        with count.counting():
            queue.add("task", {"n": 1})
    return count.figures("add")


def count_flow(url: str) -> dict[str, float]:
    """Count one submission of three nodes."""
    count = Count()
    dag = Dag("calls", [Node("a"), Node("b", deps=["a"]), Node("c", deps=["b"])], "calls-flow")
    with FlowProducer(url=url) as producer:
        producer.submit(dag)
        with count.counting():
            producer.submit(dag)
    return count.figures("flow_of_3")


async def count_round_trip(url: str, jobs: int = 100) -> dict[str, float]:
    """Count a job's way from its addition to its result, one at a time, in the mean of many."""
    count = Count()

    async def handler(_: object) -> int:
        return 1

    async with AsyncQueue("calls-trip", url=url) as queue:
        worker = Worker("calls-trip", handler, url=url)
        serving = asyncio.create_task(worker.run())
        await (await queue.add("task", {})).wait(30)
        with count.counting():
            for _ in range(jobs):
                await (await queue.add("task", {})).wait(30)
        worker.stop()
        with suppress(asyncio.CancelledError):
            await serving
    return count.figures("round_trip", jobs)


def main() -> None:
    """Count, print."""
    with server() as url:
        figures = {
            "add": count_add(url),
            "flow_of_3": count_flow(url),
            "round_trip": asyncio.run(count_round_trip(url)),
        }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
