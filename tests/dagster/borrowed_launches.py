"""A pytest plugin for Dagster's own tests of its run launcher: they launch on a queue, with a real worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import PythonFileTarget

from tests.conftest import start_server
from tests.dagster.launches import QUEUE, launcher_of
from tests.dagster.step_workers import READY, home_is
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[dg.DagsterInstance]:
    """An instance with our launcher, and a worker that has the jobs of the tests' module."""
    home = tmp_path_factory.mktemp("borrowed")
    url = f"unix://{home / 'queue.sock'}"
    log = home / "worker.log"
    command = [OQ, "dagster", "worker", "-f", str(request.path), "-q", QUEUE, "--concurrency", "2"]
    server = start_server(home / "queue.sock")
    try:
        with (
            dg.instance_for_test(overrides={"run_launcher": launcher_of(url=url, queue=QUEUE)}) as made,
            home_is(made.root_directory),
            running_process(command, url, log, Path.cwd()),
        ):
            wait_until_sync(lambda: READY in log.read_text(), f"the worker, see {log}", 180)
            yield made
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def workspace(instance: dg.DagsterInstance, request: pytest.FixtureRequest) -> Iterator[WorkspaceRequestContext]:
    """The code location of the tests' module, as Dagster's own fixture has it."""
    target = PythonFileTarget(str(request.path), "nope", os.fspath(request.path.parent), "test")
    with WorkspaceProcessContext(instance, target) as context:
        yield context.create_request_context()
