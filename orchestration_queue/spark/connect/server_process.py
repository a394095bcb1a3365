"""One process of a Spark Connect server, as its supervisor controls it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from orchestration_queue._process import memory_bytes
from orchestration_queue.server.embedded.supervisor import die_with
from orchestration_queue.spark.connect.server_state import JOBS, LOG, RUNS, SERVER_LOCK, ServerState
from orchestration_queue.spark.environment import spark_environment, spark_home
from orchestration_queue.spark.failure import describe_exit, is_noise
from orchestration_queue.spark.options import ISOLATION, SparkOptions, write_properties
from orchestration_queue.spark.progress import LISTENER_JAR

__all__ = ["ServerProcess"]

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
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.progress.reportInterval": "500ms",
            # A small job must not wait for a large one's last task.
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": pools.absolute().as_uri(),
        }
        if not options.is_isolated:
            ours |= {
                ISOLATION: "false",
                "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
                "spark.python.worker.module": "pyspark_orchestration_queue.worker",
            }
        fixed = {"spark.connect.grpc.binding.port": "0", "spark.connect.authenticate.token": self.token}
        return ours | options.properties(self._directory, "orchestration-queue", None) | fixed

    @property
    def state(self) -> ServerState:
        """The state to publish to its users."""
        return ServerState(self.name, self.port, self.token)

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def is_ready(self) -> bool:
        """Whether it listens."""
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
