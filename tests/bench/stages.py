"""The path of one job from ``add()`` to its handler's first line, in microseconds by stage.

Run as ``python -m tests.bench.stages``; prints JSON. One job at a time, 200 per second, producer and worker on one
loop. On a busy machine, read the lowest quarter.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from orchestration_queue import AsyncQueue, Worker
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.worker import AsyncActiveJob
from tests.bench.server import server

QUEUE = "bench"
JOBS, WARM_UP, PAUSE_S = 400, 20, 1 / 200
CALLS = {b"glidemq_addJob": "add", b"XREADGROUP": "listen", b"oq1_exchange": "exchange"}
STAGES = {
    "add built": "encode the job, build the call",
    "add sent": "send it",
    "listen heard": "until the read of its arrival ends",
    "exchange built": "read that, decide, build the exchange",
    "exchange sent": "send it, too",
    "exchange heard": "until its reply is there",
    "handler": "read the job, start its task, up to the handler",
}


class Path:
    """When each stage of the current job ended first."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def note(self, stage: str) -> None:
        """Note the end of a stage."""
        self.times.setdefault(stage, time.perf_counter())

    def watch(self) -> None:
        """Note what every socket sends and hears."""
        path = self

        async def exchange(self: Any, packed: bytes, count: int) -> Any:
            name = next((name for word, name in CALLS.items() if word in packed[:64]), "other")
            path.note(f"{name} built")
            await self.write(packed)
            path.note(f"{name} sent")
            replies = await self.read(count)
            path.note(f"{name} heard")
            return replies

        AsyncLink.exchange = exchange  # type: ignore[method-assign]

    def stages(self, began: float) -> dict[str, float] | None:
        """Return the microseconds of each stage; None if an earlier read of the worker's is among them."""
        if not self.times.keys() >= STAGES.keys():
            return None
        ends = [began, *(self.times[stage] for stage in STAGES)]
        if ends != sorted(ends):
            return None
        return dict(zip(STAGES.values(), [(end - start) * 1e6 for start, end in pairwise(ends)], strict=True))


async def _measure(url: str) -> list[dict[str, float]]:
    path, found = Path(), []
    started = asyncio.Event()

    async def handler(_: AsyncActiveJob) -> None:
        path.note("handler")
        started.set()

    path.watch()
    async with AsyncQueue(QUEUE, url=url) as queue:
        worker = Worker(QUEUE, handler, url=url)
        running = asyncio.ensure_future(worker.run())
        gc.collect()
        gc.freeze()
        for number in range(WARM_UP + JOBS):
            await asyncio.sleep(PAUSE_S)
            while not worker.is_listening:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            path.times.clear()
            started.clear()
            began = time.perf_counter()
            await queue.add("noop", {"at": number})
            await started.wait()
            if number >= WARM_UP and (stages := path.stages(began)):
                found.append(stages)
        worker.stop()
        await running
    return found


def _quantiles(found: list[dict[str, float]], of: Callable[[dict[str, float]], float]) -> list[int]:
    return [round(cut) for cut in statistics.quantiles(map(of, found), n=4)]


if __name__ == "__main__":
    with server() as url:
        jobs = asyncio.run(_measure(url))
    table = {stage: _quantiles(jobs, lambda job, stage=stage: job[stage]) for stage in STAGES.values()}  # type: ignore[misc]
    table["together"] = _quantiles(jobs, lambda job: sum(job.values()))
    print(json.dumps({"jobs": len(jobs), "lowest quarter, median, highest quarter": table}, indent=2))
