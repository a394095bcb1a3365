"""The process that keeps one Spark Connect server alive while it has users.

:class:`~orchestration_queue.spark.connect.server.ConnectServer` starts it. It restarts a server that was killed,
replaces it when it reaches a limit, and interrupts what a killed worker left running on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestration_queue._process import memory_bytes
from orchestration_queue.server.embedded.supervisor import Supervisor, detach, die_with, say
from orchestration_queue.spark.connect.address import JOBS, LOG, RUNS, SERVER_LOCK, ServerState, write_state
from orchestration_queue.spark.environment import spark_environment, spark_home
from orchestration_queue.spark.failure import describe_exit, is_noise
from orchestration_queue.spark.options import ISOLATION, SparkOptions, write_properties
from orchestration_queue.spark.progress import LISTENER_JAR

__all__ = ["ConnectSupervisor", "ServerProcess", "main"]

_ISOLATED = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
_SHARED = ["--class", "orchestrationqueue.ConnectServer", str(LISTENER_JAR)]
"""Spark compiles generated code, and Java warms it up, again for each class loader: an isolated session's first queries
take several times the processor time, and its Python processes stay behind."""
_POOLS = """\
<?xml version="1.0"?>
<allocations>
  <!-- Jobs of all sessions are in this pool: they take turns. Spark's own default lets the first go first. -->
  <pool name="default"><schedulingMode>FAIR</schedulingMode></pool>
</allocations>
"""
_STARTED = re.compile(r"server started at: \S*?:(\d+)\s*$", re.MULTILINE)
_JAVA_PREFACE = re.compile(r'^Exception in thread "main" (?:[\w.$]+: )?')
_LEAVES_S = 5.0


class ServerProcess:
    """Starts a server in its own directory.

    Args:
        parent: Where to make the directory.
        options: How Spark runs.
        supervisor_lock: Inherited by the server, so that no other supervisor starts while it lives.
    """

    def __init__(self, parent: Path, options: SparkOptions, supervisor_lock: int) -> None:
        self.name = secrets.token_hex(4)
        self.port = 0
        self.token = secrets.token_urlsafe(24)
        self._directory = parent / self.name
        (self._directory / RUNS).mkdir(parents=True)
        self._process = self._start(options, supervisor_lock)

    def _start(self, options: SparkOptions, supervisor_lock: int) -> subprocess.Popen[bytes]:
        properties = write_properties(self._directory, self._properties(options))
        environment = spark_environment(options, self._directory)
        home = environment.setdefault("SPARK_HOME", spark_home(environment))
        program = _ISOLATED if options.is_isolated else _SHARED
        words = ["--load-spark-defaults", "--properties-file", str(properties), *program]
        lock = os.open(self._directory / SERVER_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with (self._directory / LOG).open("wb") as log:
                return subprocess.Popen(
                    [f"{home}/bin/spark-submit", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._directory,
                    env=environment,
                    pass_fds=[lock, supervisor_lock],
                    start_new_session=True,
                    preexec_fn=die_with(os.getpid()),
                )
        finally:
            os.close(lock)  # from now on only the server holds it

    def _properties(self, options: SparkOptions) -> dict[str, str]:
        pools = self._directory / "pools.xml"
        pools.write_text(_POOLS, "utf-8")
        ours = {
            # Spark listens on all interfaces otherwise; the token is all that protects the server (decision 0010).
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.progress.reportInterval": "500ms",
            # A small job must not wait for a large one's last task.
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": pools.absolute().as_uri(),
        }
        # Sessions share compiled code then: the second job of a kind takes 1.9 s of a core instead of 5.0 (decision
        # 0010).
        if not options.is_isolated:
            ours |= {
                ISOLATION: "false",
                "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
                "spark.python.worker.module": "pyspark_orchestration_queue.worker",
            }
        # Last: the user's properties must not change these.
        fixed = {"spark.connect.grpc.binding.port": "0", "spark.connect.authenticate.token": self.token}
        return ours | options.properties(self._directory, "orchestration-queue", None) | fixed

    @property
    def state(self) -> ServerState:
        """The state to publish to its users."""
        return ServerState(self.name, self.port, self.token)

    def is_alive(self) -> bool:
        """Return whether its process runs."""
        return self._process.poll() is None

    def is_ready(self) -> bool:
        """Return whether it listens."""
        if not self.port and (said := _STARTED.search(self._log())):
            self.port = int(said[1])
        return self.port > 0

    @property
    def jobs_file(self) -> Path:
        """The file that its first job creates."""
        return self._directory / JOBS

    def jobs(self) -> int:
        """Return the number of jobs that it has run."""
        try:
            return self.jobs_file.stat().st_size
        except FileNotFoundError:
            return 0

    def memory(self) -> int:
        """Return its memory in bytes."""
        return memory_bytes(self._process.pid)

    def orphans(self) -> Iterator[Path]:
        """Yield the runs whose worker has died."""
        for run in (self._directory / RUNS).glob("*"):
            with contextlib.suppress(OSError), run.open("rb") as file:  # it may have ended just now
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield run

    def is_drained(self) -> bool:
        """Return whether no job runs on it; from then on, none can start."""
        with contextlib.suppress(OSError):
            # This fails while a run's file is in the directory, and later runs cannot create theirs.
            (self._directory / RUNS).rmdir()
        return not (self._directory / RUNS).exists()

    def end(self) -> None:
        """End the process and what it started, and remove the directory."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LEAVES_S)
                break
        shutil.rmtree(self._directory, ignore_errors=True)

    def exit_reason(self) -> str:
        """Describe how the process ended."""
        return describe_exit(self._process.returncode)

    def startup_error(self) -> str:
        """Return why it did not start: the first error of its log, without Java's stacks."""
        lines = [line for line in self._log().splitlines() if not is_noise(line)]
        errors = [line for line in lines if re.search(r"Exception|Error|ERROR", line)]
        first = (errors or lines or ["its log is empty"])[0]
        return f"its process {self.exit_reason()}: {_JAVA_PREFACE.sub('', first)[:500]}"

    def _log(self) -> str:
        return (self._directory / LOG).read_text("utf-8", "replace")


_IDLE_S = 1.0
"""A server that is idle this long after its start is warmed up."""
_TRY_AGAIN_S = 30.0
"""How long to wait before another attempt to replace a server whose successor did not start."""


class ConnectSupervisor(Supervisor):
    """Runs a Spark Connect server in the current directory.

    Args:
        request: The starter's request: ``options``, ``max_jobs``, ``max_memory``, ``grace_s``.
        supervisor_lock: Descriptor of the locked ``keeper.lock``.
    """

    def __init__(self, request: dict[str, Any], supervisor_lock: int) -> None:
        super().__init__(request["grace_s"], supervisor_lock)
        self._options = SparkOptions.model_validate(request["options"])
        self._max_jobs: int | None = request["max_jobs"]
        self._max_memory: int | None = request["max_memory"]
        self._directory = Path.cwd()
        self._current: ServerProcess | None = None
        self._next: ServerProcess | None = None
        self._retired: list[ServerProcess] = []
        self._helpers: dict[str, subprocess.Popen[bytes]] = {}
        self._since = 0.0
        self._not_before = 0.0

    def tend(self) -> bool:
        """Supervise the current server, the next one, and those that have been replaced."""
        self._fence_orphans()
        self._end_drained()
        if self._current and not self._current.is_alive():
            say(f"server {self._current.name} {self._current.exit_reason()}")
            # First: no further job may be sent to it.
            write_state(self._directory, None)
            self._current.end()
            self._current = None
        if self._next is None and self._needs_replacement():
            self._next = ServerProcess(self._directory, self._options, self.supervisor_lock)
            say(f"server {self._next.name} started")
        if self._next is not None and not self._promote_next(self._next):
            return False
        self._warm_up_if_idle()
        return True

    def end(self) -> None:
        """End all servers and helpers."""
        write_state(self._directory, ServerState(problem=self._problem) if self._problem else None)
        for helper in self._helpers.values():
            helper.kill()
            helper.wait()
        for server_process in (self._current, self._next, *self._retired):
            if server_process:
                server_process.end()

    _problem = ""

    def _needs_replacement(self) -> bool:
        if self._current is None:
            return True
        jobs = self._current.jobs()
        if time.monotonic() < self._not_before or not jobs:  # a successor would be no better
            return False
        is_worn = self._max_jobs is not None and jobs >= self._max_jobs
        return is_worn or (self._max_memory is not None and self._current.memory() >= self._max_memory)

    def _promote_next(self, coming: ServerProcess) -> bool:
        """Make the next server the current one once it is ready; False when no server can run."""
        if not coming.is_alive():
            problem = coming.startup_error()
            say(f"server {coming.name} did not start: {problem}")
            coming.end()
            self._next = None
            self._not_before = time.monotonic() + _TRY_AGAIN_S
            if self._current is None:
                self._problem = problem
            return self._current is not None
        if not coming.is_ready():
            return True
        if self._current is not None:
            # The current server continues until the new one is warm.
            if not self._run_helper(f"warm-{coming.name}", {"url": coming.state.url}):
                return True
            self._retired.append(self._current)
        self._current, self._next, self._since = coming, None, time.monotonic()
        write_state(self._directory, coming.state)
        say(f"server {coming.name} answers")
        return True

    def _warm_up_if_idle(self) -> None:
        if self._current and time.monotonic() - self._since > _IDLE_S:
            name = f"warm-{self._current.name}"
            if name in self._helpers or not self._current.jobs():
                self._run_helper(name, {"url": self._current.state.url, "jobs": str(self._current.jobs_file)})

    def _fence_orphans(self) -> None:
        """Interrupt what killed workers left running, wherever their jobs run now."""
        for server_process in (self._current, *self._retired):
            for run in server_process.orphans() if server_process else ():
                assert server_process is not None  # noqa: S101 (or there were no orphans)
                url = server_process.state.url
                if self._run_helper(f"fence-{run.name}", {"url": url, "session": run.name}):
                    say(f"session {run.name} of a worker that has died was ended")
                    run.unlink(missing_ok=True)

    def _end_drained(self) -> None:
        for server_process in [worn for worn in self._retired if not worn.is_alive() or worn.is_drained()]:
            say(f"server {server_process.name} was replaced and has no jobs left")
            self._retired.remove(server_process)
            server_process.end()

    def _run_helper(self, name: str, request: dict[str, str]) -> bool:
        """Start a helper process, unless it was started, and return whether it has ended."""
        if (helper := self._helpers.get(name)) is None:
            helper = self._helpers[name] = subprocess.Popen(
                # -P: files of the working directory must not replace modules.
                [sys.executable, "-P", "-m", "orchestration_queue.spark.connect.session"],
                stdin=subprocess.PIPE,
            )
            assert helper.stdin is not None  # noqa: S101 (it is a pipe, as asked for above)
            with contextlib.suppress(BrokenPipeError), helper.stdin as stdin:
                stdin.write(json.dumps(request).encode())
        return helper.poll() is not None


def main(directory: str, supervisor_lock: str) -> int:
    """Detach, then supervise."""
    request = json.load(sys.stdin)
    if not detach(directory, int(supervisor_lock)):
        return 0
    for old in Path().iterdir():  # of a supervisor that was killed
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
    return ConnectSupervisor(request, int(supervisor_lock)).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
