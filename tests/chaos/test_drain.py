"""A drain lasts whatever the server does: handlers get all of it, and outcomes are reported if the server is back."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from orchestration_queue.client import Queue
from orchestration_queue.states import JobState
from orchestration_queue.worker.heartbeat import SHUTDOWN_TIMEOUT_S
from tests.chaos.workers import suspend
from tests.conftest import start_server
from tests.processes import worker_process
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

CODE = """\
import asyncio
import time
from pathlib import Path

def count(job):
    with Path("runs").open("a") as runs:
        runs.write(f"{job.id}\\n")

def in_thread(job):
    count(job)
    while not Path("may_end").exists():
        time.sleep(0.01)
    Path(f"ended-{job.id}").touch()
    return job.data

async def on_loop(job):
    count(job)
    while not Path("may_end").exists():
        await asyncio.sleep(0.01)
    Path(f"ended-{job.id}").touch()
    return job.data
"""
LEASE_S = 2
OUTAGE_S = 3 * SHUTDOWN_TIMEOUT_S
"""Longer than a lease, and than a worker without a drain would wait for its server."""
JOBS = 4


class Server:
    """A server of one test, whose jobs outlive it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.url = f"unix://{directory}/own.sock"
        self.start()

    def start(self) -> None:
        settings = ("--appendonly", "yes", "--appendfsync", "always", "--dir", str(self._directory))
        self.process: subprocess.Popen[bytes] = start_server(self._directory / "own.sock", *settings)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def freeze(self) -> None:
        suspend(self.process)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.end()


FAULTS: dict[str, tuple[Callable[[Server], None], Callable[[Server], None]]] = {
    "killed": (Server.end, Server.start),
    "frozen": (Server.freeze, Server.thaw),
}


@pytest.mark.parametrize("ends_during_outage", [True, False], ids=["ends during it", "ends after it"])
@pytest.mark.parametrize("handler", ["in_thread", "on_loop"])
@pytest.mark.parametrize("fault", FAULTS)
def test_jobs_are_finished_and_reported_by_a_worker_that_drains_during_an_outage(
    fault: str, handler: str, ends_during_outage: bool, server: Server, tmp_path: Path
) -> None:
    begin, end = FAULTS[fault]
    (tmp_path / "handlers.py").write_text(CODE)
    log, runs = tmp_path / "log", tmp_path / "runs"
    options = ("--concurrency", str(JOBS), "--lease", str(LEASE_S), "--stalled-interval", "0.3", "--drain", "600")
    with (
        Queue("q", url=server.url) as queue,
        worker_process(f"handlers:{handler}", "q", server.url, *options, log=log, directory=tmp_path) as worker,
    ):
        jobs = [queue.add("job", number) for number in range(JOBS)]
        wait_until_sync(lambda: runs.exists() and len(runs.read_text().split()) == JOBS, "the jobs to start")
        begin(server)
        worker.send_signal(signal.SIGTERM)
        wait_until_sync(lambda: "is draining" in log.read_text(), "the drain to begin")
        if ends_during_outage:
            (tmp_path / "may_end").touch()
            wait_until_sync(lambda: len(list(tmp_path.glob("ended-*"))) == JOBS, "the handlers to end")
        time.sleep(OUTAGE_S)
        assert worker.poll() is None
        end(server)
        if not ends_during_outage:
            with redis.Redis(unix_socket_path=server.url.removeprefix("unix://")) as raw:
                wait_until_sync(lambda: raw.info("commandstats").get("cmdstat_fcall"), "the worker to reach it")
            (tmp_path / "may_end").touch()
        assert worker.wait(120) == 0
        assert [(job.refresh().state, job.record.result) for job in jobs] == [
            (JobState.COMPLETED, number) for number in range(JOBS)
        ]
    assert len(runs.read_text().split()) == JOBS, "each ran once"


def test_what_a_drain_leaves_without_its_server_is_logged_and_the_exit_code_says_it(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "handlers.py").write_text(CODE)
    log, runs = tmp_path / "log", tmp_path / "runs"
    with (
        Queue("q", url=server.url) as queue,
        worker_process(
            "handlers:on_loop", "q", server.url, "--drain", "1", "--lease", "600", log=log, directory=tmp_path
        ) as worker,
    ):
        job = queue.add("job")
        wait_until_sync(runs.exists, "the job to start")
        server.end()
        worker.send_signal(signal.SIGTERM)
        wait_until_sync(lambda: "is draining" in log.read_text(), "the drain to begin")
        (tmp_path / "may_end").touch()
        assert worker.wait(120) == 1
    assert "leaves 1 jobs without an answer to their outcomes after a drain of 1 s" in log.read_text()
    assert log.read_text().count(f": {job.id}\n") == 1
    server.start()
