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
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from sqlalchemy import NullPool, create_engine

from tests.processes import OQ
from tests.waiting import wait_until_sync

__all__ = ["Airflow", "Outcome"]

AIRFLOW: Final = str(Path(sys.executable).with_name("airflow"))
DAGS: Final = Path(__file__).with_name("dags")
EXECUTOR: Final = "orchestration_queue.airflow.QueueExecutor"
LONG_S: Final = 300.0
"""For a machine that is busy with other things: Airflow's programs need ten seconds of a core each to start."""
LEASE_S: Final = 15
"""What a worker may be silent for on such a machine. Each job has it from the executor, whatever the worker's is."""
ENDED: Final = frozenset({"success", "failed"})
_CALLS: Final = 5

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
        database: Its PostgreSQL; default an SQLite file.
        settings: More of Airflow's options, as ``SECTION__NAME``.
        programs: What runs, by name.
    """

    home: Path
    url: str
    database: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    log_port: int = field(default_factory=free_port)
    programs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _commands: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        settings = {
            "API__BASE_URL": f"http://127.0.0.1:{self.port}",
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.port),
            "API__WORKERS": "1",
            "CORE__DAGS_FOLDER": str(self.dags),
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__DAG_DISCOVERY_SAFE_MODE": "False",
            "CORE__EXECUTOR": f"{EXECUTOR},LocalExecutor",
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__PARALLELISM": "4",
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "LOGGING__WORKER_LOG_SERVER_PORT": str(self.log_port),
            "ORCHESTRATION_QUEUE__CONSOLE_URL": "http://console:8080/",
            "ORCHESTRATION_QUEUE__LEASE": str(LEASE_S),
            "ORCHESTRATION_QUEUE__URL": self.url,
            "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "120",
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
            # A scheduler whose SQLite is locked for longer than five seconds, by default, ends with an error.
            "DATABASE__SQL_ALCHEMY_CONN": self.database or f"sqlite:///{self.home}/airflow.db?timeout=120",
            "CORE__DAGBAG_IMPORT_TIMEOUT": "240",
            "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "270",
            **self.settings,
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

    def add_dags(self, name: str) -> None:
        """Copy some of the DAG files: a file or a folder of them."""
        source, target = DAGS / name, self.dags / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            shutil.copy(source, target)
        else:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        self._commands[name] = command
        with (self.home / f"{name}.log").open("ab") as log:
            self.programs[name] = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, cwd=self.home, start_new_session=True
            )
        return self.programs[name]

    def start_scheduler(self, name: str = "scheduler") -> None:
        self.start(name, AIRFLOW, "scheduler", "--skip-serve-logs")

    def start_worker(self, name: str, queue: str = "default", *arguments: str) -> subprocess.Popen[bytes]:
        words = ("--queue", queue, "--stalled-interval", "0.5", *arguments)
        return self.start(name, OQ, "airflow", "worker", *words)

    def restart(self, name: str) -> None:
        """Start a program again that has ended."""
        self.start(name, *self._commands[name])

    def start_triggerer(self) -> None:
        self.start("triggerer", AIRFLOW, "triggerer", "--skip-serve-logs")

    def kill(self, name: str) -> None:
        """Kill a program and what it has started: a LocalExecutor's processes would keep its database connection."""
        process = self.programs.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    @contextmanager
    def worker(self, queue: str = "default", *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        name = f"worker-{queue}-{uuid.uuid4().hex[:6]}"
        process = self.start_worker(name, queue, *arguments)
        try:
            yield process
        finally:
            if name in self.programs:
                self.stop(name)

    @contextmanager
    def team_worker(self, team: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that takes the server and prefix of a team from Airflow's configuration."""
        name = f"worker-of-{team}"
        process = self.start(name, AIRFLOW, "queue", "worker", "--team", team, "--queue", "default")
        try:
            yield process
        finally:
            self.stop(name)

    def stop(self, name: str) -> None:
        process = self.programs.pop(name)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    @contextmanager
    def running(self, before: Callable[[], None] = lambda: None) -> Iterator[Airflow]:
        """Run all but workers.

        Args:
            before: What to do with the database before any program starts.
        """
        self.marks.mkdir(parents=True)
        if not self.dags.exists():
            self.add_dags(".")
        migrated = subprocess.run([AIRFLOW, "db", "migrate"], env=self.environment, capture_output=True, timeout=LONG_S)
        assert migrated.returncode == 0, migrated.stderr
        before()
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
        files = len(list(self.dags.rglob("*.py")))
        known = self.query("select count(distinct fileloc) from serialized_dag join dag using (dag_id)")
        return known[0][0] == files and self.is_up()

    def is_up(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/api/v2/version", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask Airflow's database; ``?`` stands for a value."""
        if self.database:
            engine = create_engine(self.database, poolclass=NullPool)
            with engine.connect() as connection:
                rows = connection.exec_driver_sql(statement.replace("?", "%s"), values)
                return [tuple(row) for row in rows]
        with closing(sqlite3.connect(self.home / "airflow.db", timeout=120)) as database:
            return database.execute(statement, values).fetchall()

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Ask Airflow's API server, as its UI does; return the answer."""
        base = f"http://127.0.0.1:{self.port}"
        token = httpx.get(f"{base}/auth/token", timeout=60).json()["access_token"]
        known = {"Authorization": f"Bearer {token}", "Accept": "application/json", **(headers or {})}
        for _ in range(_CALLS):
            answer = httpx.request(method, f"{base}/api/v2/{path}", json=body, headers=known, timeout=60)
            if answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR:  # SQLite was locked, and the call did nothing
                break
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def ask(self, path: str, body: Any = None) -> Any:
        """Ask the REST API; a body is posted."""
        return self.call("GET" if body is None else "POST", path, body)

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run of a DAG; return its id."""
        run_id = f"run-{uuid.uuid4().hex[:8]}"
        body = {"dag_run_id": run_id, "logical_date": None, "conf": conf or {}}
        self.call("POST", f"dags/{dag_id}/dagRuns", body)
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
