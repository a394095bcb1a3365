"""A whole Airflow for tests: database, API server, scheduler, DAG processor, and workers, as a user starts them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.processes import OQ
from tests.waiting import wait_until_sync

__all__ = ["Airflow", "Outcome"]

AIRFLOW: Final = str(Path(sys.executable).with_name("airflow"))
DAGS: Final = Path(__file__).with_name("dags")
EXECUTOR: Final = "orchestration_queue.airflow.QueueExecutor"
LONG_S: Final = 300.0
"""For a machine that is busy with other things: Airflow's programs need ten seconds of a core each to start."""
ENDED: Final = frozenset({"success", "failed"})

Outcome = tuple[str, int]
"""The state of a task, and its number of tries."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Airflow:
    """One deployment.

    Attributes:
        home: Its directory, with logs of all programs.
        url: The queue's server.
        programs: What runs, by name.
    """

    home: Path
    url: str
    port: int = field(default_factory=free_port)
    log_port: int = field(default_factory=free_port)
    programs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        settings = {
            "API__BASE_URL": f"http://127.0.0.1:{self.port}",
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.port),
            "API__WORKERS": "1",
            "CORE__DAGS_FOLDER": str(self.dags),
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__EXECUTOR": f"{EXECUTOR},LocalExecutor",
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__PARALLELISM": "4",
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "LOGGING__WORKER_LOG_SERVER_PORT": str(self.log_port),
            "ORCHESTRATION_QUEUE__CONSOLE_URL": "http://console:8080/",
            "ORCHESTRATION_QUEUE__LEASE": "3",
            "ORCHESTRATION_QUEUE__URL": self.url,
            "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "6",
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        }
        own = {"AIRFLOW_HOME": str(self.home), "OQ_URL": self.url, "OQ_TEST_MARKS": str(self.marks)}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, **own, "PATH": path, **{f"AIRFLOW__{name}": value for name, value in settings.items()}}

    @property
    def dags(self) -> Path:
        """The directory of its DAG files, which tests may change."""
        return self.home / "dags"

    @property
    def marks(self) -> Path:
        """Where tasks leave marks for tests."""
        return self.home / "marks"

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.home / f"{name}.log").open("ab") as log:
            self.programs[name] = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, cwd=self.home, start_new_session=True
            )
        return self.programs[name]

    def start_scheduler(self) -> None:
        self.start("scheduler", AIRFLOW, "scheduler", "--skip-serve-logs")  # workers serve them

    def kill(self, name: str) -> None:
        """Kill a program without what it has started, as a machine's memory killer does."""
        process = self.programs.pop(name)
        process.kill()
        process.wait(60)

    @contextmanager
    def worker(self, queue: str = "default", *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        name = f"worker-{queue}-{uuid.uuid4().hex[:6]}"
        words = ("--queue", queue, "--stalled-interval", "0.5", "--lease", "3", *arguments)
        process = self.start(name, OQ, "airflow", "worker", *words)
        try:
            yield process
        finally:
            if name in self.programs:
                self.stop(name)

    def stop(self, name: str) -> None:
        process = self.programs.pop(name)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    @contextmanager
    def running(self) -> Iterator[Airflow]:
        self.marks.mkdir(parents=True)
        if not self.dags.exists():
            shutil.copytree(DAGS, self.dags, ignore=shutil.ignore_patterns("__pycache__"))
        migrated = subprocess.run([AIRFLOW, "db", "migrate"], env=self.environment, capture_output=True, timeout=LONG_S)
        assert migrated.returncode == 0, migrated.stderr
        try:
            self.start("api-server", AIRFLOW, "api-server")
            self.start_scheduler()
            self.start("dag-processor", AIRFLOW, "dag-processor")
            wait_until_sync(self._has_dags, "all DAGs are there", LONG_S)
            yield self
        finally:
            for name in list(self.programs):
                self.stop(name)

    def _has_dags(self) -> bool:
        assert not (errors := self.query("select stacktrace from import_error")), errors
        files = len(list(self.dags.glob("*.py")))
        known = self.query("select count(distinct fileloc) from serialized_dag join dag using (dag_id)")
        return known[0][0] == files and self.is_up()

    def is_up(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/api/v2/version", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.home / "airflow.db", timeout=30)) as database:
            return database.execute(statement, values).fetchall()

    def ask(self, path: str, body: Any = None) -> Any:
        """Ask the REST API; a body is posted."""
        base = f"http://127.0.0.1:{self.port}"
        token = httpx.get(f"{base}/auth/token", timeout=60).json()["access_token"]
        answer = httpx.request(
            "GET" if body is None else "POST",
            f"{base}/api/v2/{path}",
            json=body,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def trigger(self, dag_id: str) -> str:
        """Start a run of a DAG; return its id."""
        run_id = f"run-{uuid.uuid4().hex[:8]}"
        self.ask(f"dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": None})
        return run_id

    def state(self, run_id: str) -> str:
        return str(self.query("select state from dag_run where run_id = ?", run_id)[0][0])

    def wait(self, run_id: str, seconds: float = LONG_S) -> str:
        """Wait for the end of a run; return its state."""
        wait_until_sync(lambda: self.state(run_id) in ENDED, f"{run_id} ends, {self.outcomes(run_id)}", seconds)
        return self.state(run_id)

    def outcomes(self, run_id: str) -> dict[str, Outcome]:
        """The state and tries of each task of a run."""
        rows = self.query("select task_id, map_index, state, try_number from task_instance where run_id = ?", run_id)
        return {f"{task}[{index}]" if index >= 0 else task: (state, tries) for task, index, state, tries in rows}

    def xcoms(self, run_id: str) -> dict[str, Any]:
        """The results of a run's tasks."""
        rows = self.query(
            "select task_id, map_index, value from xcom where run_id = ? and key = 'return_value'", run_id
        )
        return {f"{task}[{index}]": value for task, index, value in rows}

    def lines(self, mark: str) -> list[str]:
        """What tasks have written into a mark."""
        path = self.marks / mark
        return path.read_text().splitlines() if path.exists() else []

    def log(self, name: str) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.home.glob(f"{name}*.log"))
