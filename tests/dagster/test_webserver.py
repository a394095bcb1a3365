"""Runs are cancelled where people cancel them: in the web UI, whose button is one request to the webserver."""

from __future__ import annotations

import json
import os
import socket
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from tests.dagster.launches import LOCATION, Launches
from tests.dagster.test_daemon import BIN, ROOT, in_own_group
from tests.waiting import at_load, wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]

_WITHIN_S = 2.0
"""How soon nothing of a canceled run is left, on a machine that has nothing else to do."""
_TERMINATE = """
mutation Terminate($runId: String!) {
  terminateRun(runId: $runId) {
    __typename
    ... on TerminateRunFailure { message }
    ... on PythonError { message }
  }
}
"""


def ask(url: str, query: str, **variables: str) -> Any:
    """What the webserver answers, as the UI asks it."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310  http, as made below
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310  the same
        return json.load(reply)["data"]


@pytest.fixture(scope="module")
def webserver(yard: Launches, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a webserver of the instance, which has the code location."""
    directory = tmp_path_factory.mktemp("webserver")
    module = {"module_name": LOCATION, "working_directory": str(ROOT), "location_name": LOCATION}
    workspace = directory / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = (str(BIN / "dagster-webserver"), "-h", "127.0.0.1", "-p", str(port), "-w", str(workspace))
    environment = {**os.environ, "DAGSTER_HOME": yard.instance.root_directory, "SCRATCH": str(yard.scratch)}
    url = f"http://127.0.0.1:{port}/graphql"

    def answers() -> bool:
        with suppress(OSError):
            return bool(ask(url, "{ version }")["version"])
        return False

    log = directory / "webserver.log"
    with in_own_group(*command, environment=environment, log=log):
        wait_until_sync(answers, f"the webserver to answer, see {log}", 150)
        yield url


def is_there(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_step_that_runs_is_gone_soon_after_the_request(launched: Launches, webserver: str) -> None:
    run_id = launched.submit("endless_job")
    (line,) = launched.traces("endless")
    step = int(line.split()[0])
    assert is_there(step)

    def is_over() -> bool:
        return launched.status(run_id) is dg.DagsterRunStatus.CANCELED and not is_there(step)

    with ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        answer = pool.submit(ask, webserver, _TERMINATE, runId=run_id)
        wait_until_sync(is_over, "the run to be cancelled, and its step's process to be gone", 120)
        took_s = time.monotonic() - begun
        assert answer.result()["terminateRun"]["__typename"] == "TerminateRunSuccess"
    print(f"cancelled, and gone, {took_s:.2f} s after the request")  # noqa: T201  the figure that matters
    assert took_s <= at_load(_WITHIN_S)
    assert launched.lines("cleaned") == [str(step)]
    assert launched.types(run_id).count("PIPELINE_CANCELED") == 1


def test_a_run_that_nobody_has_taken_is_cancelled_before_the_answer(launched: Launches, webserver: str) -> None:
    run_id = launched.submit("hello_job", {"orchestration_queue/queue": "no-worker-here"})
    answer = ask(webserver, _TERMINATE, runId=run_id)["terminateRun"]
    assert answer["__typename"] == "TerminateRunSuccess"
    assert launched.status(run_id) is dg.DagsterRunStatus.CANCELED
    assert launched.lines("hello") == []
