"""A stop signal drains Dagster's workers and ends `oq dagster dev`, whatever they were started with."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster import steps
from tests.dagster.step_workers import QUICK, READY, Fleet, home_is
from tests.dagster.test_develop import DEFINITIONS, processes_in
from tests.integration.test_signals import STARTER, WAYS, child_of, skip_without_namespaces
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.timeout(400),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

STARTS: dict[str, Sequence[str]] = {
    "plain": (),
    "interrupts ignored": (sys.executable, "-c", STARTER, "SIGINT SIGQUIT", ""),
    "all ignored": (sys.executable, "-c", STARTER, "SIGTERM SIGINT", ""),
    "process 1 of a shell": (*WAYS["process 1"], *WAYS["exec of a shell"]),
}
CASES = [("plain", signal.SIGINT), *((start, signal.SIGTERM) for start in STARTS)]
cases = pytest.mark.parametrize(("start", "number"), CASES, ids=lambda value: getattr(value, "name", value))


@contextmanager
def started(start: str, *command: str, url: str, directory: Path) -> Iterator[tuple[int, Path]]:
    """A command that was started in this way: the process id to signal, and its log."""
    if start.startswith("process 1"):
        skip_without_namespaces()
    log = directory / "log"
    with running_process([*STARTS[start], *command], url, log, directory) as process:
        wait_until_sync(
            lambda: process.poll() is not None or READY in log.read_text(), f"it to be ready, see {log}", 150
        )
        assert process.poll() is None, log.read_text()
        yield child_of(process) if start.startswith("process 1") else process.pid, log
        assert process.wait(100) == 0, log.read_text()


@cases
def test_a_signal_drains_a_worker(
    start: str,
    number: signal.Signals,
    instance: dg.DagsterInstance,
    server_url: str,
    queue_name: str,
    tmp_path: Path,
) -> None:
    fleet = Fleet(instance, server_url, queue_name, tmp_path)
    command = (OQ, "dagster", "worker", "-m", "tests.dagster.steps", "-q", queue_name, *QUICK, "--drain", "100")
    root = str(Path(__file__).parents[2])
    with home_is(instance.root_directory), ThreadPoolExecutor(1) as pool:
        with started(start, *command, "-d", root, url=server_url, directory=tmp_path) as (pid, _):
            if start == "interrupts ignored":
                os.kill(pid, signal.SIGINT)
            run = pool.submit(fleet.run, steps.endless_job)
            wait_until_sync(lambda: fleet.lines("endless"), "the step to begin", 120)
            os.kill(pid, number)
            (tmp_path / "go").touch()
        assert run.result(120).success
    assert len(fleet.lines("endless")) == 1, "the step ran twice"


@cases
def test_a_signal_ends_a_development_server_with_all_that_it_started(
    start: str, number: signal.Signals, server_url: str, tmp_path: Path
) -> None:
    (tmp_path / "definitions.py").write_text(DEFINITIONS.format(body="1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    command = (OQ, "dagster", "dev", "-f", "definitions.py", "-p", port, "-q", tmp_path.name)
    with started(start, *command, url=server_url, directory=tmp_path) as (pid, _):
        mine = processes_in(tmp_path)
        assert len(mine) > 2
        os.kill(pid, number)
    wait_until_sync(lambda: not any(Path(f"/proc/{one}").exists() for one in mine), "what it has started to end")
