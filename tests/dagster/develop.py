"""A running `oq dagster dev`, as tests use it: its address, its runs, and their logs."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from tests.dagster.step_workers import READY, home_is
from tests.dagster.test_webserver import ask
from tests.waiting import wait_until_sync

__all__ = ["Dev", "running_dev"]

_LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) { ... on LaunchRunSuccess { run { id } } }
}
"""
_STATUS = "query Status($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
_LOCATIONS = "{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { __typename } } } } }"


@dataclass(frozen=True)
class Dev:
    """A running ``oq dagster dev`` of a ``definitions.py``.

    Attributes:
        process: The command.
        directory: Its working directory.
        url: The webserver.
    """

    process: subprocess.Popen[bytes]
    directory: Path
    url: str

    def ask(self, query: str, **variables: Any) -> Any:
        """Return the only answer of the UI's server."""
        (answer,) = ask(f"{self.url}/graphql", query, **variables).values()
        return answer

    def launch(self, job: str) -> str:
        """Launch a run as the launchpad does, and wait until it ended well; return its id."""
        selector = {
            "repositoryLocationName": "definitions.py",
            "repositoryName": "__repository__",
            "pipelineName": job,
        }
        launched = self.ask(_LAUNCH, params={"selector": selector, "mode": "default"})
        run_id = str(launched["run"]["id"])
        wait_until_sync(lambda: self.ask(_STATUS, id=run_id)["status"] == "SUCCESS", f"run {run_id} to succeed", 150)
        return run_id

    def told(self, run_id: str) -> list[str]:
        """Return what a run's log says."""
        home = home_is(str(self.directory / ".oq" / "dagster"))
        with home, dg.DagsterInstance.get() as instance:
            return [entry.user_message for entry in instance.all_logs(run_id)]

    def is_loaded(self) -> bool:
        """Return whether the code location is loaded."""
        with suppress(OSError):
            entries = self.ask(_LOCATIONS)["locationEntries"]
            return [entry["locationOrLoadError"]["__typename"] for entry in entries] == ["RepositoryLocation"]
        return False


@contextmanager
def running_dev(command: Sequence[str], directory: Path, console_url: str | None = None) -> Iterator[Dev]:
    """Run the command at a free port until the block ends; the worker and the code location are ready.

    Args:
        command: ``oq dagster dev`` with its arguments.
        directory: Where to run it. It gets a file ``log``.
        console_url: Where the queue's console is, for links.
    """
    log = directory / "log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    environment = {name: value for name, value in os.environ.items() if name not in ("DAGSTER_HOME", "OQ_URL")}
    environment["OQ_DAGSTER_DEV_PORT"] = port
    if console_url:
        environment["OQ_CONSOLE_URL"] = console_url
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stderr=output, stdout=output, start_new_session=True, cwd=directory, env=environment
        )
    dev = Dev(process, directory, f"http://127.0.0.1:{port}")
    try:
        wait_until_sync(lambda: READY in log.read_text(), f"the worker to be ready, see {log}", 150)
        wait_until_sync(dev.is_loaded, f"the code location to be loaded, see {log}", 150)
        yield dev
    finally:
        process.terminate()
        process.wait(60)
