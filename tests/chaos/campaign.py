"""Many jobs of every kind, every fault, every deployment: what was lost, ran twice, or hung, as a table.

Run it with ``make chaos``, or ``python -m tests.chaos.campaign --jobs 2000 --deployments single``. It fails when a
number is not 0 where docs/explanation/guarantees.md says 0.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from orchestration_queue.client import FlowProducer, NewJob, Queue
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import Backoff, JobOptions, Ordering
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from tests.chaos.deployments import DEPLOYMENTS, Deployment, Fault
from tests.processes import running_process

T = TypeVar("T")
LEASE_S = 4
HUNG_S = 60.0
"""After so long without the end of a job, those that have not ended hang."""
CHUNK = 50
PAUSE_S = 2.0
"""Between two of the same fault."""

KINDS: dict[str, JobOptions] = {
    "plain": JobOptions(),
    "lifo": JobOptions(lifo=True),
    "urgent": JobOptions(priority=2),
    "delayed": JobOptions(delay=1),
    "stumbling": JobOptions(attempts=3, backoff=Backoff(delay=0.1)),
    "hopeless": JobOptions(attempts=2, backoff=Backoff(delay=0.1)),
    "ordered": JobOptions(ordering=Ordering(key="one-by-one", concurrency=4)),
}


@dataclass(frozen=True)
class Row:
    """One line of the report: the outcomes of the jobs while one fault was injected repeatedly.

    Flows are not confirmed by replicas, so a failover may lose those of its last moments.
    """

    deployment: str
    fault: str
    times: int
    jobs: int
    lost: int
    lost_flows: int
    hung: int
    doubled: int
    may_double: str
    refused: int
    seconds: int

    @property
    def is_good(self) -> bool:
        bad = (self.lost_flows, self.doubled) if self.may_double == "no" else ()
        return not any((self.lost, self.hung, *bad))


class Fleet:
    """Worker processes, what they witness, and their faults."""

    def __init__(self, deployment: Deployment, folder: Path, size: int) -> None:
        self._folder, self._deployment = folder, deployment
        self._stack = ExitStack()
        self.witness = folder / "witness"
        self.witness.touch()
        self._workers: list[subprocess.Popen[bytes]] = []
        for _ in range(size):
            self._start()
        self.faults = {
            "none": Fault(lambda: time.sleep(PAUSE_S)),
            "worker killed": Fault(self._kill, may_double=True),
            "worker stopped": Fault(self._stop, may_double=True),
            "worker told to stop": Fault(self._tell),
        }

    def _start(self) -> None:
        queues, main = self._deployment.queues, "tests.chaos.campaign_worker"
        command = [sys.executable, "-m", main, str(self.witness), str(LEASE_S), *queues]
        log = self._folder / f"worker-{time.monotonic_ns()}.log"
        self._workers.append(self._stack.enter_context(running_process(command, self._deployment.url, log)))

    def _kill(self) -> None:
        worker = self._workers.pop(0)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(60)
        self._start()

    def _stop(self) -> None:
        self._workers[0].send_signal(signal.SIGSTOP)
        time.sleep(2 * LEASE_S)
        self._workers[0].send_signal(signal.SIGCONT)
        self._workers.append(self._workers.pop(0))

    def _tell(self) -> None:
        worker = self._workers.pop(0)
        worker.send_signal(signal.SIGTERM)
        self._start()
        worker.wait(60)

    def witnessed(self) -> Counter[str]:
        """Return how often each job was run to its end, by ``queue id``."""
        lines = self.witness.read_text().splitlines()
        return Counter(line.removeprefix("ended ") for line in lines if line.startswith("ended "))

    def close(self) -> None:
        self._stack.close()


class Producer:
    """Adds jobs of every kind, again under the same ids until the server has said that it has them."""

    def __init__(self, deployment: Deployment, label: str) -> None:
        self._url, self._names, self._label = deployment.url, deployment.queues, label
        self._durability = "primary" if deployment.name == "single" else "replicated"
        self.accepted: list[tuple[QueueKeys, str]] = []
        self.refused = 0

    def add(self, jobs: int) -> None:
        with ExitStack() as stack:
            queues = [
                stack.enter_context(Queue(name, url=self._url, durability=self._durability))  # type: ignore[arg-type]
                for name in self._names
            ]
            flows = stack.enter_context(FlowProducer(url=self._url))
            for number, start in enumerate(range(0, jobs, CHUNK)):
                queue = queues[number % len(queues)]
                new = [self._job(place) for place in range(start, min(jobs, start + CHUNK))]
                added = self._insist(partial(queue.add_bulk, new))
                self.accepted += [(queue.keys, job.id) for job in added]
                flow_id = f"{self._label}-flow{number}"
                flow = self._insist(partial(flows.submit, self._dag(), flow_id=flow_id))
                self.accepted += [(job.keys, job.job_id) for job in flow.graph.jobs.values()]

    def _job(self, place: int) -> NewJob:
        kind = list(KINDS)[place % len(KINDS)]
        return NewJob(kind, place, KINDS[kind].model_copy(update={"job_id": f"{self._label}-{place}"}))

    def _dag(self) -> Dag:
        first, last = self._names[0], self._names[-1]
        nodes = [Node("a"), Node("b", queue=last, deps=["a"]), Node("c", deps=["a", "b"])]
        return Dag("chain", nodes, first)

    def _insist(self, call: Callable[[], T]) -> T:
        deadline = time.monotonic() + HUNG_S
        while True:
            try:
                return call()
            except OrchestrationQueueError:
                self.refused += 1
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def run_fault(deployment: Deployment, fleet: Fleet, name: str, fault: Fault, jobs: int) -> Row:
    """Add jobs while injecting a fault repeatedly, and count their outcomes."""
    began, times, is_over = time.monotonic(), 0, threading.Event()
    producer = Producer(deployment, name.replace(" ", "-"))
    adding = threading.Thread(target=producer.add, args=(jobs,))
    adding.start()
    with Connection.open(deployment.url, connect_timeout=HUNG_S) as connection:
        while adding.is_alive() or not times or _open(connection, list(producer.accepted)) > jobs // 10:
            fault.bring()
            times += 1
            is_over.wait(PAUSE_S)
    adding.join()
    records = settle(deployment, producer.accepted)
    ended = fleet.witnessed()
    lost = [job_id for (_, job_id), record in zip(producer.accepted, records, strict=True) if record is None]
    lost_flows = sum("." in job_id for job_id in lost)
    of_fault = [f"{keys.queue} {job_id}" for keys, job_id in producer.accepted]
    return Row(
        deployment.name,
        name,
        times,
        len(records),
        len(lost) - lost_flows,
        lost_flows,
        sum(record is not None and not record.is_finished for record in records),
        sum(ended[each] > 1 for each in of_fault),
        "yes" if fault.may_double else "no",
        producer.refused,
        round(time.monotonic() - began),
    )


def _open(connection: Connection, accepted: Sequence[tuple[QueueKeys, str]]) -> int:
    records = connection.follow(job_records.jobs(accepted, ("state",)))
    return sum(record is not None and not record.is_finished for record in records)


def settle(
    deployment: Deployment, accepted: Sequence[tuple[QueueKeys, str]], fields: Sequence[str] = ("state",)
) -> list[JobRecord | None]:
    """Wait until all have ended, or none has for long; return these fields of each."""
    left, since = len(accepted) + 1, time.monotonic()
    with Connection.open(deployment.url, connect_timeout=HUNG_S) as connection:
        while True:
            records = connection.follow(job_records.jobs(accepted, fields))
            open_ones = sum(record is not None and not record.is_finished for record in records)
            if open_ones < left:
                left, since = open_ones, time.monotonic()
            if not open_ones or time.monotonic() - since > HUNG_S:
                return records
            time.sleep(0.5)


def run(name: str, jobs: int, workers: int, only: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each fault of a deployment."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        deployment = DEPLOYMENTS[name](Path(folder))
        stack.callback(deployment.close)
        Connection.open(deployment.url, connect_timeout=HUNG_S).close()
        fleet = Fleet(deployment, Path(folder), workers)
        stack.callback(fleet.close)
        faults = {
            fault: it for fault, it in {**fleet.faults, **deployment.faults}.items() if fault in (only or [fault])
        }
        for fault, it in faults.items():
            yield run_fault(deployment, fleet, fault, it, jobs // len(faults))


def _line(row: Sequence[Any]) -> str:
    return "".join(f"{word!s:<{width}}" for word, width in zip(row, (12, 22, 7, 9, 7, 12, 7, 9, 12, 9, 7), strict=True))


def main() -> None:
    """Parse the arguments, run, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.campaign", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of each deployment (default 100000)")
    parser.add_argument("--workers", type=int, default=4, help="worker processes (default 4)")
    parser.add_argument("--deployments", nargs="*", choices=list(DEPLOYMENTS), default=list(DEPLOYMENTS))
    parser.add_argument("--faults", nargs="*", default=[], help="only these faults (default all)")
    arguments = parser.parse_args()
    print(_line([field.name for field in fields(Row)]), flush=True)
    is_good = True
    for name in arguments.deployments:
        for row in run(name, arguments.jobs, arguments.workers, arguments.faults):
            print(_line(astuple(row)), flush=True)
            is_good &= row.is_good
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
