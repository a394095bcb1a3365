"""A Dagster instance, a resource, and a worker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from orchestration_queue.dagster import QueueResource
from tests.processes import worker_process

QUICK = ("--concurrency", "2", "--lock-duration", "2", "--stalled-interval", "0.5", "--promotion-interval", "0.2")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A real instance, in a directory of its own."""
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture
def resource(server_url: str) -> Iterator[QueueResource]:
    """The queue, as definitions would hold it."""
    made = QueueResource(url=server_url)
    yield made
    made.close()


@pytest.fixture
def scratch(tmp_path: Path) -> str:
    """Where tasks leave traces."""
    return str(tmp_path)


@pytest.fixture
def worker(server_url: str, queue_name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of the test's queue, in a process of its own."""
    with worker_process("tests.dagster.jobs:tasks", queue_name, server_url, *QUICK) as process:
        yield process
