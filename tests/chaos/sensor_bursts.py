"""Bursts of jobs beside a real `dagster-daemon` whose sensor listens, while daemon, worker and server are killed.

Run it with ``python -m tests.chaos.sensor_bursts --jobs 100000 --bursts 3``. It fails when an event was lost.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import redis

from orchestration_queue.client import NewJob, Queue
from orchestration_queue.dagster import QueueEvent, QueueResource, queue_event_sensor
from orchestration_queue.errors import OrchestrationQueueError, TransportError
from orchestration_queue.options import JobOptions, Retention
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import GROUP
from orchestration_queue.protocol.operations import worker_registry
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms
from tests.chaos.test_event_readers import KEYS, QUEUE, settle_as_node
from tests.dagster.stores import QueueServer, queue_server
from tests.processes import OQ
from tests.waiting import wait_until_sync

ROOT = Path(__file__).parents[2]
EVERY = 1000
"""One job in this number of them requests a run."""
FLEETS = ("own", "node")
INSTANCE = """\
telemetry: {enabled: false}
sensors: {use_threads: true, num_workers: 2}
concurrency: {runs: {max_concurrent_runs: 0}}
"""
"""Runs stay in Dagster's own queue: that they are requested is all that matters here."""


# -- the code location -------------------------------------------------------------------------------------------------


@dg.op
def nothing() -> None:
    """Do nothing."""


@dg.job
def target() -> None:
    """What the sensor requests."""
    nothing()


@queue_event_sensor(
    queue=QUEUE,
    job=target,
    events=["completed", "failed"],
    start="oldest",
    limit=5000,
    on_gap="fail",
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def heard(event: QueueEvent, _queue: QueueResource) -> dg.RunRequest | None:
    """Note each job that ended, and request a run for some."""
    with Path(os.environ["OQ_BURSTS_NOTES"]).open("a") as notes:
        notes.write(f"{event.job_id} {event.id}\n")
    number = int(event.job_id.rpartition("-")[2])
    return None if number % EVERY else dg.RunRequest(tags={"job": event.job_id})


defs = dg.Definitions(jobs=[target], sensors=[heard], resources={"queue": QueueResource(url=dg.EnvVar("OQ_URL"))})


# -- the deployment ----------------------------------------------------------------------------------------------------


class Deployment:
    """A server, a daemon and a worker; each can be killed, and is started again."""

    def __init__(self, home: Path, server: QueueServer) -> None:
        self.home, self.server = home, server
        self.faults: Counter[str] = Counter()
        self._environment = {
            **os.environ,
            "DAGSTER_HOME": str(home),
            "OQ_URL": server.url,
            "OQ_BURSTS_NOTES": str(home / "notes"),
        }
        daemon = str(Path(sys.executable).with_name("dagster-daemon"))
        self._commands = {
            "daemon": (daemon, "run", "-m", "tests.chaos.sensor_bursts", "-d", str(ROOT)),
            "worker": (
                OQ,
                "worker",
                "tests.chaos.jobs:tasks",
                "--queue",
                QUEUE,
                "--concurrency",
                "100",
                "--lease",
                "5",
            ),
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        with (self.home / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._commands[name],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=ROOT,
            )

    def end(self, name: str) -> None:
        process = self._processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def kill(self, name: str) -> None:
        """Kill one of the three, and start it again."""
        if name == "server":
            self.server.kill()
            self.server.start()
        else:
            self.end(name)
            self.start(name)
        self.faults[name] += 1

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        self.start(name)
        try:
            yield
        finally:
            self.end(name)


@contextmanager
def saboteur(deployment: Deployment, chance: random.Random, names: Sequence[str], pause_s: float) -> Iterator[None]:
    """Kill one of these every now and then, until the block ends."""
    stop = threading.Event()

    def sabotage() -> None:
        while not stop.wait(chance.uniform(0.5, 1.5) * pause_s):
            deployment.kill(chance.choice(names))

    thread = threading.Thread(target=sabotage)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# -- bursts ------------------------------------------------------------------------------------------------------------


def insist(act: Callable[[], object]) -> None:
    """Act until the server, which may be restarting, has replied."""

    def done() -> bool:
        try:
            act()
        except (TransportError, redis.ConnectionError, redis.TimeoutError):
            return False
        return True

    wait_until_sync(done, "the server", 120)


def burst_own(deployment: Deployment, names: Sequence[str]) -> None:
    """Add jobs as our producers do; a worker of ours ends them. Those fail that several of its deaths have met."""
    with Queue(QUEUE, url=deployment.server.url) as queue:
        for first in range(0, len(names), 2000):
            jobs = [NewJob("work", {"seconds": 0}, own_options(name)) for name in names[first : first + 2000]]
            insist(lambda jobs=jobs: queue.add_bulk(jobs))  # type: ignore[misc]

        def has_ended() -> bool:
            with suppress(OrchestrationQueueError):
                counts = queue.counts()
                return not (counts.waiting or counts.active or counts.delayed)
            return False

        wait_until_sync(has_ended, "the burst", 1800)


def own_options(name: str) -> JobOptions:
    """Return a job's options: few are kept, so that a server which is killed has little to read when it starts."""
    return JobOptions(job_id=name, remove_on_complete=Retention(count=10_000))


def burst_node(deployment: Deployment, names: Sequence[str]) -> None:
    """Add and complete jobs through the frozen functions alone, as a fleet of Node does."""
    raw = redis.Redis(unix_socket_path=deployment.server.url.removeprefix("unix://"))
    left = set(names)
    with Connection.open(deployment.server.url) as connection:
        insist(lambda: connection.pipeline([worker_registry.create_group(KEYS)]))
        for first in range(0, len(names), 500):
            insist(
                lambda first=first: connection.pipeline(  # type: ignore[misc]
                    [
                        glidemq.add_job(
                            KEYS, job_name="work", data="0", opts="{}", timestamp_ms=now_ms(), custom_id=name
                        )
                        for name in names[first : first + 500]
                    ],
                    repeatable=True,
                )
            )

        def settle(after: str) -> int:
            taken: Any = raw.xreadgroup(GROUP, "node", {KEYS.stream: after}, count=200) or []
            entries = [(entry.decode(), fields[b"jobId"].decode()) for _, page in taken for entry, fields in page]
            connection.pipeline(
                [call for entry, job_id in entries for call in settle_as_node(job_id, entry)], repeatable=True
            )
            left.difference_update(job_id for _, job_id in entries)
            return len(entries)

        while left:
            try:
                settle(">")
            except (TransportError, redis.ConnectionError, redis.TimeoutError):

                def settle_pending() -> None:
                    while settle("0"):
                        pass

                insist(settle_pending)
    raw.close()


def read_notes(home: Path) -> Counter[str]:
    """Return how often the sensor noted each job."""
    return Counter(line.partition(" ")[0] for line in _lines(home))


def peak(home: Path) -> int:
    """Return the most events in one second, by their ids."""
    return max(Counter(line.partition(" ")[2].partition("-")[0][:-3] for line in set(_lines(home))).values())


def _lines(home: Path) -> list[str]:
    file = home / "notes"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def main() -> int:
    """Run bursts of both fleets, and print what the sensor missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="of each burst")
    parser.add_argument("--bursts", type=int, default=2)
    parser.add_argument("--pause", type=float, default=15, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oq-bursts-")))
        (home / "dagster.yaml").write_text(INSTANCE)
        deployment = Deployment(home, stack.enter_context(queue_server(home, fsync="no")))
        instance = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
        stack.enter_context(deployment.running("daemon"))
        return run(deployment, instance, given)


def run(deployment: Deployment, instance: dg.DagsterInstance, given: argparse.Namespace) -> int:
    raw = redis.Redis(unix_socket_path=deployment.server.url.removeprefix("unix://"))
    wait_until_sync(lambda: raw.exists(KEYS.events_readers), "the sensor's first tick", 120)
    chance = random.Random(given.seed)
    names: set[str] = set()
    for number in range(given.bursts):
        fleet = FLEETS[number % 2]
        burst = [f"{fleet}-{number}-{job}" for job in range(given.jobs)]
        names.update(burst)
        raw.bgrewriteaof()
        begun = time.monotonic()
        with ExitStack() as stack:
            names_of = ["daemon", "server"]
            if fleet == "own":
                stack.enter_context(deployment.running("worker"))
                names_of.append("worker")
            stack.enter_context(saboteur(deployment, chance, names_of, given.pause))
            {"own": burst_own, "node": burst_node}[fleet](deployment, burst)
        taken = time.monotonic() - begun
        behind = len(names) - len(read_notes(deployment.home))
        print(
            f"burst {number} ({fleet}): {given.jobs / taken:,.0f} jobs/s; the sensor is {behind:,} behind", flush=True
        )
    begun = time.monotonic()
    with suppress(AssertionError):
        wait_until_sync(lambda: len(read_notes(deployment.home)) >= len(names), "the sensor", 1800)
    expected = {name for name in names if not int(name.rpartition("-")[2]) % EVERY}

    def requested() -> Counter[str]:
        return Counter(found.tags["job"] for found in instance.get_runs())

    with suppress(AssertionError):
        wait_until_sync(lambda: set(requested()) >= expected, "the runs", 120)
    notes, runs = read_notes(deployment.home), requested()
    lost, missing = names - set(notes), expected - set(runs)
    twice = sum(count > 1 for count in runs.values())
    print(f"read to the end {time.monotonic() - begun:,.0f} s after the last burst; killed: {dict(deployment.faults)}")
    again, most = sum(notes.values()) - len(notes), peak(deployment.home)
    print(f"{len(names):,} ends of jobs, up to {most:,}/s, {len(lost)} lost, {again:,} read again")
    print(f"{len(expected)} runs to request, {len(missing)} lost, {twice} twice")
    raw.close()
    return int(bool(lost or missing or twice))


if __name__ == "__main__":
    sys.exit(main())
