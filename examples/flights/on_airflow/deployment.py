"""One Airflow for the demo: its programs, and what its REST API says of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from examples.flights.fleet import DemoError, Fleet, find_free_port

__all__ = ["DAG", "WORKERS", "Deployment", "TaskView", "environment"]

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
AIRFLOW = str(BIN / "airflow")
DAG = "flights_2013"
WORKERS = ("worker-1", "worker-2")
_RUNS = f"api/v2/dags/{DAG}/dagRuns"
_START_LIMIT_S = 300.0
_ANSWER_LIMIT_S = 60.0
_LOOK_S = 0.5
_SILENCE_LIMIT_S = 120.0
"""How long Airflow may answer with errors, as while its SQLite file is locked."""


def environment(directory: Path, port: int) -> dict[str, str]:
    """Return the environment of all programs: their home, the queue's server, and Airflow's configuration."""
    settings = {
        "API__BASE_URL": f"http://127.0.0.1:{port}",
        "API__HOST": "127.0.0.1",
        "API__PORT": str(port),
        "API__WORKERS": "1",
        "CORE__DAGS_FOLDER": str(Path(__file__).with_name("dags")),
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__EXECUTOR": "orchestration_queue.airflow.QueueExecutor",
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        # A lost worker must be noticed within seconds here; the default (30 s) suits production.
        "ORCHESTRATION_QUEUE__LEASE": "6",
        "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
    }
    return {
        "AIRFLOW_HOME": str(directory / "airflow"),
        "FLIGHTS_DATA": str(directory / "data"),
        "OQ_URL": f"embedded://{directory / 'oq'}",
        "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        **{f"AIRFLOW__{name}": value for name, value in settings.items()},
    }


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task of the run, as Airflow's API describes it."""

    name: str
    state: str
    tries: int
    seconds: float | None
    pid: int | None


class _NotReadyError(DemoError):
    """Airflow's API server does not answer, or does not know the DAG yet."""


class Deployment:
    """Airflow's programs and two workers, in the environment of this process.

    Args:
        fleet: Starts the programs.
        logs: Directory of their logs.
        port: Port of the API server.
    """

    def __init__(self, fleet: Fleet, logs: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._fleet = fleet
        self._logs = logs
        self._port = port
        self._token = ""

    @classmethod
    def configure(cls, fleet: Fleet, directory: Path) -> Deployment:
        """Return a deployment on a free port, and set the environment for its programs."""
        port = find_free_port(8080)
        os.environ |= environment(directory, port)
        return cls(fleet, directory / "logs", port)

    def start(self) -> None:
        """Create the database, and start all programs but the workers.

        Raises:
            DemoError: The database could not be created.
        """
        log = self._logs / "migrate.log"
        with log.open("wb") as output:
            command = [AIRFLOW, "db", "migrate"]
            if subprocess.run(command, stdout=output, stderr=output, check=False, timeout=_START_LIMIT_S).returncode:
                raise DemoError(f"Airflow's database could not be created; see {log}.")
        for name in ("api-server", "scheduler", "dag-processor"):
            self._fleet.start(name, AIRFLOW, name)

    def start_workers(self) -> None:
        """Start the workers, of which each runs two tasks at a time."""
        for name in WORKERS:
            self._fleet.start(name, AIRFLOW, "queue", "worker", "--concurrency", "2", "--stalled-interval", "1")

    def trigger(self) -> str:
        """Start a run of the DAG once Airflow knows it, and return its id.

        Raises:
            DemoError: A program has ended, or Airflow is not ready in time.
        """
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            self._fleet.check()
            try:
                self._token = self._token or str(self._ask("GET", "auth/token")["access_token"])
                return str(self._ask("POST", _RUNS, {"logical_date": None})["dag_run_id"])
            except _NotReadyError:
                time.sleep(_LOOK_S)
        raise DemoError(f"Airflow was not ready after {_START_LIMIT_S:.0f} s; see the logs in {self._logs}.")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_LIMIT_S)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, f"/{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, HTTPException) as error:
            raise _NotReadyError(f"Airflow's API server does not answer: {error}.") from error
        finally:
            connection.close()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise _NotReadyError(f"Airflow's API server answers {path} with {answer.status}: {text[:200]!r}.")
        return json.loads(text)

    def _read(self, path: str) -> Any:
        """Return an answer of the API server, which may be busy.

        Raises:
            DemoError: A program has ended, or the server does not answer for two minutes.
        """
        deadline = time.monotonic() + _SILENCE_LIMIT_S
        while True:
            self._fleet.check()
            try:
                return self._ask("GET", path)
            except _NotReadyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)

    def state(self, run: str) -> str:
        """Return the state of a run."""
        return str(self._read(f"{_RUNS}/{quote(run)}")["state"])

    def tasks(self, run: str) -> dict[str, TaskView]:
        """Return the tasks of a run, by name."""
        rows = self._read(f"{_RUNS}/{quote(run)}/taskInstances?limit=100")["task_instances"]
        return {
            row["task_id"]: TaskView(
                row["task_id"], row["state"] or "none", row["try_number"], row["duration"], row["pid"]
            )
            for row in rows
        }

    def result(self, run: str, task: str) -> Any:
        """Return the result of a task."""
        entry = f"taskInstances/{task}/xcomEntries/return_value?deserialize=true"
        return self._read(f"{_RUNS}/{quote(run)}/{entry}")["value"]

    def worker_of(self, pid: int | None) -> str:
        """Return the worker whose descendant a process is; empty if it has ended."""
        workers = {self._fleet.pid(name): name for name in WORKERS if self._fleet.has(name)}
        while pid and pid not in workers:
            try:
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                return ""
        return workers.get(pid or 0, "")
