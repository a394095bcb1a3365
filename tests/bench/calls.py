"""How much of the package one call runs through: calls of its functions, functions, and files.

``python -m tests.bench.calls`` prints JSON; ``--trace`` lists the calls too, nested, in their order. Counted by the
interpreter's profiler, after a first call that imports and connects; the numbers are the same on every machine.
Neither a coroutine that continues after a wait is a call, nor a list comprehension (no function from Python 3.12 on).
What runs for fewer than half of the jobs, such as a worker's maintenance, is no part of a job's way, and is counted
beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from orchestration_queue import AsyncQueue, Dag, FlowProducer, Node, Queue, Worker
from tests.bench.server import server

PACKAGE: Final = str(Path(sys.modules[Queue.__module__.partition(".")[0]].__file__ or "").parent)
GOALS: Final = {"add": (35, 30, 10), "round_trip": (300, 100, 25), "flow_of_3": (200, 80, 15)}
"""Calls, functions and files that each should need at most."""
_COMPREHENSIONS: Final = {"<dictcomp>", "<listcomp>", "<setcomp>"}


class Count:
    """The calls of the package's functions while it counts.

    Args:
        jobs: For how many jobs.

    Attributes:
        calls: How often each function was called.
        trace: Each call in its order, after as many spaces as calls enclose it.
    """

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs
        self.calls: Counter[CodeType] = Counter()
        self.trace: list[str] = []

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name in _COMPREHENSIONS or _goes_on(frame):
            return
        self.calls[code] += 1
        depth, outer = 0, frame.f_back
        while outer is not None:
            depth += outer.f_code.co_filename.startswith(PACKAGE)
            outer = outer.f_back
        self.trace.append(" " * depth + _place(code))

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

    def figures(self, what: str) -> dict[str, float]:
        """Return what was counted, for each job, and the goal beside it."""
        calls, functions, files = GOALS[what]
        every = {code for code, count in self.calls.items() if count >= self.jobs / 2}
        others = self.calls.keys() - every
        return {
            "calls": round(self.calls.total() / self.jobs),
            "calls_goal": calls,
            "functions": len(every),
            "functions_goal": functions,
            "files": len(_files(every)),
            "files_goal": files,
            "functions_beside": len(others),
            "files_beside": len(_files(others) - _files(every)),
        }


def _goes_on(frame: FrameType) -> bool:
    """Whether a coroutine or generator continues after a wait: the argument of its RESUME is 0 only when it begins."""
    return frame.f_code.co_code[frame.f_lasti + 1] != 0


def _files(functions: Iterable[CodeType]) -> set[str]:
    return {code.co_filename for code in functions}


def _place(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_firstlineno} {code.co_qualname}"


def count_add(url: str, count: Count) -> dict[str, float]:
    """Count one ``queue.add``."""
    with Queue("calls-add", url=url) as queue:
        queue.add("task", {"n": 1})
        with count.counting():
            queue.add("task", {"n": 1})
    return count.figures("add")


def count_flow(url: str, count: Count) -> dict[str, float]:
    """Count one submission of three nodes."""
    dag = Dag("calls", [Node("a"), Node("b", deps=["a"]), Node("c", deps=["b"])], "calls-flow")
    with FlowProducer(url=url) as producer:
        producer.submit(dag)
        with count.counting():
            producer.submit(dag)
    return count.figures("flow_of_3")


async def count_round_trip(url: str, count: Count) -> dict[str, float]:
    """Count a job's way from its addition to its result, one at a time, in the mean of many."""

    async def handler(_: object) -> int:
        return 1

    async with AsyncQueue("calls-exchange", url=url) as queue:
        worker = Worker("calls-exchange", handler, url=url)
        serving = asyncio.create_task(worker.run())
        for _ in range(10):
            await (await queue.add("task", {})).wait(30)
        with count.counting():
            for _ in range(count.jobs):
                await (await queue.add("task", {})).wait(30)
        worker.stop()
        with suppress(asyncio.CancelledError):
            await serving
    return count.figures("round_trip")


def main() -> None:
    """Count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", choices=GOALS, help="list the calls of one of them, too")
    traced = parser.parse_args().trace
    counts = {"add": Count(), "flow_of_3": Count(), "round_trip": Count(jobs=100)}
    with server() as url:
        figures = {
            "add": count_add(url, counts["add"]),
            "flow_of_3": count_flow(url, counts["flow_of_3"]),
            "round_trip": asyncio.run(count_round_trip(url, counts["round_trip"])),
        }
    if traced:
        count = counts[traced]
        print("\n".join(count.trace[: len(count.trace) // count.jobs]), file=sys.stderr)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
