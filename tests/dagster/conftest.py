"""A Dagster instance, a resource, and a worker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dagster as dg
import pytest
from alembic.script import ScriptDirectory
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox

from orchestration_queue.dagster import QueueResource
from orchestration_queue.dagster.testing import queue_resource
from tests.dagster.launches import Launches, serving
from tests.processes import worker_process

# Dagster reads its hundred migrations for each SQLite file, one of them for each run: 45 ms, and here once.
ScriptDirectory.from_config = cache(ScriptDirectory.from_config)  # type: ignore[method-assign]

QUICK = ("--concurrency", "2", "--lease", "10", "--stalled-interval", "0.5", "--promotion-interval", "0.2")
"""A worker that is quick in all but to give up a job whose worker a busy machine has stopped for some seconds."""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A real instance, in a directory of its own."""
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture
def uncaptured() -> Iterator[dg.DagsterInstance]:
    """A real instance for runs in this process, whose output stays what it is: capturing it takes other processes."""
    nowhere = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
    with dg.instance_for_test(overrides={"compute_logs": nowhere}) as made:
        yield made


@pytest.fixture
def resource(server_url: str) -> Iterator[QueueResource]:
    """The queue, as definitions would hold it."""
    with queue_resource(server_url) as made:
        yield made


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    """A folder of definitions in YAML."""
    with create_defs_folder_sandbox() as made:
        yield made


@pytest.fixture
def scratch(tmp_path: Path) -> str:
    """Where tasks leave traces."""
    return str(tmp_path)


@pytest.fixture
def worker(server_url: str, queue_name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of the test's queue, in a process of its own."""
    with worker_process("tests.dagster.jobs:tasks", queue_name, server_url, *QUICK) as process:
        yield process


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launches]:
    """An instance whose runs are jobs on a server of its own, and a worker for its queue."""
    with serving(tmp_path_factory.mktemp("yard")) as made:
        yield made


@pytest.fixture
def launched(yard: Launches) -> Iterator[Launches]:
    """The same, without traces of the tests before; runs end with the test."""
    for trace in yard.scratch.iterdir():
        trace.unlink()
    yield yard
    for record in yard.instance.get_run_records():
        yard.instance.run_launcher.terminate(record.dagster_run.run_id)
