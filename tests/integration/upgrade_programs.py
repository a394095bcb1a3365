"""What a version leaves on a server, and its workers: programs that the code of either version runs.

``fill FOLDER NAME`` leaves jobs, flows and schedules in every state, and is killed in the middle of a job; ``work
FOLDER NAME OTHER...`` serves them; ``add FOLDER NAME`` adds more. Each run of a handler is a line of FOLDER/runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from orchestration_queue import (
    AsyncActiveJob,
    AsyncBroadcast,
    AsyncFlowProducer,
    AsyncQueue,
    Backoff,
    BroadcastWorker,
    Dag,
    Every,
    FlowTemplate,
    JobOptions,
    NewJob,
    Node,
    Ordering,
    Queue,
    TriggerRule,
    Worker,
    WorkerOptions,
    run_workers,
)
from tests.waiting import wait_until

BEGUN, HELD, WAITING, NEWS = "begun", "held", "waiting", "news"
"""Queues whose worker stops half-way, whose worker is killed, and without a worker; and a broadcast."""
QUICK = WorkerOptions(
    concurrency=6,
    stalled_interval=timedelta(milliseconds=300),
    promotion_interval=timedelta(milliseconds=100),
    flow_interval=timedelta(milliseconds=300),
    drain=timedelta(seconds=20),
)
TICKS, MEETS = 6, 12
"""How many runs a schedule has, and how many jobs wait until the workers of all versions have started one."""
RUNS = {
    **dict.fromkeys(("waiting", "first", "last-in", "delayed", "in-order", "grouped", "pooled", "tagged", "shared"), 4),
    **dict.fromkeys(("packed", "overdue", "scheduled-node", "message"), 4),
    **dict.fromkeys(("a", "b", "c", "breaks", "cleans-up", "failed"), 1),
    **dict.fromkeys(("retried", "suspended", "held"), 2),
    "completed": 5,
    "tick": TICKS,
}
"""How often handlers run for jobs of each name, on workers of all versions together."""


class Handler:
    """Notes each run, and does what the job says."""

    def __init__(self, folder: str, name: str, others: tuple[str, ...] = ()) -> None:
        self._file, self._name, self._others = Path(folder, "runs"), name, others
        self._file.touch()

    def has_run(self, *names: str) -> bool:
        """Whether each of these is the name of a job that has run, or of the version that ran one."""
        return set(names) <= set(self._file.read_text().split())

    async def until(self, *names: str) -> None:
        """Wait for that."""
        await wait_until(lambda: self.has_run(*names), f"runs of {names}")

    async def __call__(self, job: AsyncActiveJob) -> Any:
        with self._file.open("a") as runs:
            runs.write(f"{job.name} {job.id} {self._name}\n")
        if job.name == "suspended" and not job.signals:
            job.suspend("waits for an approval")
        if job.name == "held" and self._name == "filler":
            await asyncio.Event().wait()
        if job.name == "meets":
            await self.until(*self._others)
        data = job.data or {}
        if job.attempt < data.get("attempts", 1):
            raise ValueError("once more")
        return await job.upstream_results() or data.get("n")


async def fill(handler: Handler) -> None:
    """Leave jobs in every state, and end in the middle of one."""
    worker = Worker(BEGUN, handler, options=QUICK)
    running = asyncio.ensure_future(worker.run())
    await add_waiting()
    await add_begun()
    await handler.until("completed", "failed", "retried", "suspended", "a", "breaks", "tick")
    worker.stop()
    await running
    running = asyncio.ensure_future(Worker(HELD, handler, options=QUICK).run())
    async with AsyncQueue(HELD) as held:
        await held.add("held", None, JobOptions(job_id="held", lease=timedelta(seconds=1)))
    await handler.until("held")
    os.kill(os.getpid(), signal.SIGKILL)


async def add_begun() -> None:
    """Add what this version's worker begins."""
    retried = JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=timedelta(seconds=2)))
    nodes = [
        Node("a", data={"n": 1}),
        Node("b", queue=WAITING, deps=("a",)),
        Node("c", deps=("b",)),
        Node("breaks", data={"attempts": 2}),
        Node("cleans-up", deps=("breaks", "b"), trigger_rule=TriggerRule.ALL_DONE),
    ]
    async with AsyncQueue(BEGUN) as queue, AsyncFlowProducer() as flows:
        await queue.add_bulk([NewJob("completed", {"n": n}, JobOptions(job_id=f"completed-{n}")) for n in range(5)])
        await queue.add("failed", {"attempts": 2}, JobOptions(job_id="failed"))
        await queue.add("retried", {"attempts": 2}, retried)
        await queue.add("suspended", None, JobOptions(job_id="suspended"))
        await flows.submit(Dag("half-done", nodes, queue=BEGUN), flow_id="half-done")
        await queue.schedulers.upsert("tick", Every(timedelta(milliseconds=500), limit=TICKS))


async def add_waiting() -> None:
    """Add what no worker of this version sees."""
    options = {
        "waiting": JobOptions(),
        "first": JobOptions(priority=3),
        "last-in": JobOptions(lifo=True),
        "delayed": JobOptions(delay=timedelta(seconds=3)),
        "in-order": JobOptions(ordering=Ordering(key="one")),
        "grouped": JobOptions(ordering=Ordering(key="two", concurrency=2)),
        "pooled": JobOptions(pools={"warehouse": 1}),
        "tagged": JobOptions(tags=["nightly"]),
    }
    jobs = [NewJob(name, {"n": n}, each) for name, each in options.items() for n in range(4)]
    jobs += [NewJob("shared", {"n": n}, JobOptions(share=f"tenant-{n % 2}")) for n in range(4)]
    packed = [Node(f"p{n}", task="packed", deps=[f"p{n - 1}"] if n else []) for n in range(4)]
    flow = FlowTemplate(Dag("scheduled", [Node("x", task="scheduled-node")], queue=WAITING))
    async with AsyncQueue(WAITING) as queue, AsyncFlowProducer() as flows, AsyncBroadcast(NEWS) as news:
        await queue.pools.set("warehouse", 1)
        await queue.shares.set("tenant-0", 3)
        await queue.add_bulk(jobs)
        await flows.submit(Dag("packed", packed, queue=WAITING), flow_id="packed", carrier="packed")
        await queue.schedulers.upsert("overdue", Every(timedelta(milliseconds=700), limit=4))
        await queue.schedulers.upsert("scheduled", Every(timedelta(milliseconds=900), limit=4), flow)
        await news.subscribe("reader")
        for n in range(4):
            await news.publish("message", {"n": n})


def work(handler: Handler) -> None:
    """Serve all of it until SIGTERM."""
    reader = BroadcastWorker(NEWS, handler, subscription="reader", options=QUICK)
    run_workers(*(Worker(name, handler, options=QUICK) for name in (BEGUN, HELD, WAITING)), reader)


def main(program: str, folder: str, name: str, *others: str) -> None:
    """Run one of the programs."""
    handler = Handler(folder, name, others)
    if program == "fill":
        asyncio.run(fill(handler))
    elif program == "work":
        work(handler)
    else:
        with Queue(WAITING) as queue:
            queue.add_bulk([NewJob("meets") for _ in range(MEETS)])


if __name__ == "__main__":
    main(*sys.argv[1:])
