"""The process that keeps one Spark Connect server alive while it has users.

:class:`~orchestration_queue.spark.connect.server.ConnectServer` starts it. It restarts a server that was killed,
replaces it when it reaches a limit, and interrupts what a killed worker left running on it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from orchestration_queue.server.embedded.supervisor import Supervisor, detach, say
from orchestration_queue.spark.connect.server_process import ServerProcess
from orchestration_queue.spark.connect.server_state import ServerState, write_state
from orchestration_queue.spark.options import SparkOptions

__all__ = ["ConnectSupervisor", "main"]

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
                [sys.executable, "-P", "-m", "orchestration_queue.spark.connect.session"], stdin=subprocess.PIPE
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
