"""Jobs of durable steps, sleeps, and calls while their workers and their server are killed: what was lost or repeated.

Run it with ``python -m tests.chaos.step_kills --jobs 20000``. It fails unless every job completed with the right
result, each call added one job, and no step's function ran again after its result had been stored.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.errors import LeaseLostError
from orchestration_queue.flows import Node
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.protocol.call import Call, chunks
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import queue_state
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.chaos.campaign import HUNG_S, settle
from tests.chaos.deployments import Single
from tests.processes import running_process

QUEUE = "walks"
MOST_STEPS = 50
CALLS_EVERY, SLEEPS_EVERY = 5, 7
ROUND = 2_500
"""Jobs of one server, whose file is read again after each kill."""
SERVERS_SHARE = 0.25
"""How many of the kills are the server's."""
OPTIONS = WorkerOptions(
    concurrency=8,
    lease=timedelta(seconds=4),
    stalled_interval=timedelta(seconds=0.5),
    max_stalled=1000,
    promotion_interval=timedelta(seconds=0.2),
    flow_interval=timedelta(seconds=0.5),
    block=timedelta(seconds=0.5),
)


class Walker:
    """Takes the steps of jobs, and notes in one write each that a function runs, and that its result is stored."""

    def __init__(self, witness: str) -> None:
        self._file = os.open(witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _note(self, what: str, job: AsyncActiveJob, step: int) -> None:
        os.write(self._file, f"{what} {os.getpid()} {job.id} {step}\n".encode())

    async def _take(self, job: AsyncActiveJob, step: int) -> int:
        self._note("ran", job, step)
        await asyncio.sleep(0.002)
        return step

    async def __call__(self, job: AsyncActiveJob) -> int:
        if job.name == "part":
            return int(job.data)
        try:
            return await self._walk(job)
        except (LeaseLostError, asyncio.CancelledError):
            self._note("lost", job, 0)
            raise

    async def _walk(self, job: AsyncActiveJob) -> int:
        total, middle = 0, job.data["steps"] // 2
        for step in range(job.data["steps"]):
            total += await job.step(f"step-{step}", self._take, job, step)
            self._note("stored", job, step)
            if step == middle and job.data["calls"]:
                total += await job.call(Node("part", data=1000))
            if step == middle and job.data["sleeps"]:
                await job.sleep("nap", 0.05)
        return total


async def work(url: str, witness: str) -> None:
    """Be a worker process until SIGTERM."""
    worker = Worker(QUEUE, Walker(witness), url=url, options=OPTIONS)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


@dataclass
class Report:
    """What happened."""

    jobs: int = 0
    steps: int = 0
    calls: int = 0
    seconds: float = 0
    worker_kills: int = 0
    server_kills: int = 0
    interrupted: int = 0
    """Functions that ran again because their result had not been stored."""
    lost: int = 0
    hung: int = 0
    wrong: int = 0
    repeated: int = 0
    """Functions that ran again although their result was stored."""
    stale: int = 0
    """The same, in attempts that had lost the job to another worker, and stored nothing."""
    called_twice: int = 0

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.hung or self.wrong or self.repeated or self.called_twice)


class Walks:
    """The server, the workers, and the jobs.

    Args:
        folder: Where the server keeps its file, and the workers their logs.
        jobs: How many.
        workers: Worker processes.
        seed: Decides about steps and kills.
    """

    def __init__(self, folder: Path, jobs: int, workers: int, seed: int) -> None:
        self._chance = random.Random(seed)
        self._folder, self.report = folder, Report()
        self._stack = ExitStack()
        # With fsync each second, a server that is killed while its file is synced loses up to two seconds.
        self._server = Single(folder, "always")
        self._stack.callback(self._server.close)
        Connection.open(self._server.url, connect_timeout=HUNG_S).close()
        self._witness = folder / "witness"
        self._witness.touch()
        self._jobs = {f"walk-{place}": self._data(place) for place in range(jobs)}
        self._workers: list[subprocess.Popen[bytes]] = []
        for _ in range(workers):
            self._start_worker()

    def _data(self, place: int) -> dict[str, Any]:
        steps = self._chance.randint(1, MOST_STEPS)
        return {"steps": steps, "calls": place % CALLS_EVERY == 0, "sleeps": place % SLEEPS_EVERY == 0}

    def _start_worker(self) -> None:
        command = [sys.executable, "-m", "tests.chaos.step_kills", "work", str(self._witness)]
        log = self._folder / f"worker-{time.monotonic_ns()}.log"
        self._workers.append(self._stack.enter_context(running_process(command, self._server.url, log)))

    def run(self, pause_s: float) -> Report:
        """Add the jobs, kill until few are left to start, and check the outcome of all."""
        began = time.monotonic()
        self._add()
        accepted = [(QueueKeys(QUEUE), job_id) for job_id in self._jobs]
        with Connection.open(self._server.url, connect_timeout=HUNG_S) as connection:
            while connection.follow(queue_state.counts(QueueKeys(QUEUE))).waiting > len(accepted) // 20:
                time.sleep(self._chance.uniform(pause_s / 2, pause_s * 3 / 2))
                self._kill()
            records = settle(self._server, accepted, ("state", "returnvalue"))
            self.report.seconds = time.monotonic() - began
            deps = connection.pipeline([Call("SCARD", (keys.deps(job_id),)) for keys, job_id in accepted])
            parts = connection.follow(queue_state.counts(QueueKeys(QUEUE))).completed - len(accepted)
        for data, record, called in zip(self._jobs.values(), records, deps, strict=True):
            self._check(data, record, called)
        self.report.called_twice += parts != self.report.calls
        self._check_witness()
        return self.report

    def close(self) -> None:
        """End all processes."""
        self._stack.close()

    def _add(self) -> None:
        with Queue(QUEUE, url=self._server.url) as queue:
            for some in chunks(list(self._jobs.items())):
                queue.add_bulk([NewJob("walk", data, JobOptions(job_id=job_id)) for job_id, data in some])

    def _kill(self) -> None:
        if self._chance.random() < SERVERS_SHARE:
            self._server.faults["server killed"].bring()
            self.report.server_kills += 1
            return
        worker = self._workers.pop(0)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(60)
        self.report.worker_kills += 1
        self._start_worker()

    def _check(self, data: dict[str, Any], record: JobRecord | None, called: object) -> None:
        report, steps = self.report, data["steps"]
        report.jobs += 1
        report.steps += steps
        report.calls += data["calls"]
        report.called_twice += called != int(data["calls"])
        if record is None:
            report.lost += 1
        elif not record.is_finished:
            report.hung += 1
        else:
            report.wrong += record.result != sum(range(steps)) + 1000 * data["calls"]

    def _check_witness(self) -> None:
        """Check that nothing ran after its result was stored, in the order in which the workers wrote."""
        stored: set[tuple[str, str]] = set()
        ran: set[tuple[str, str]] = set()
        late: Counter[tuple[str, str]] = Counter()
        for line in self._witness.read_text().splitlines():
            what, pid, job_id, step = line.split(" ")
            if what == "stored":
                stored.add((job_id, step))
            elif what == "ran":
                late[job_id, pid] += (job_id, step) in stored
                self.report.interrupted += (job_id, step) in ran
                ran.add((job_id, step))
            else:
                self.report.stale += late.pop((job_id, pid), 0)
        self.report.repeated = late.total()


def walk(jobs: int, workers: int, pause_s: float, seed: int) -> Report:
    """Run a campaign of its own server; return what happened."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        walks = Walks(Path(folder), jobs, workers, seed)
        try:
            return walks.run(pause_s)
        finally:
            walks.close()


def main() -> None:
    """Parse the arguments, run, print the report."""
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(os.environ["OQ_URL"], sys.argv[2]))
        return
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.step_kills", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two kills (default 3)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    is_good = True
    for number, start in enumerate(range(0, arguments.jobs, ROUND)):
        jobs = min(ROUND, arguments.jobs - start)
        report = walk(jobs, arguments.workers, arguments.pause, arguments.seed + number)
        total.update(asdict(report))
        is_good &= report.is_good
        print(report, file=sys.stderr, flush=True)
    for name, value in total.items():
        print(f"{name:14}{value:>10,.0f}")
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
