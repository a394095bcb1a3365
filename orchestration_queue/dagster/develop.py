"""Run Dagster's development server together with workers, for ``oq dagster dev``; imports no Dagster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orchestration_queue._logging import get_logger
from orchestration_queue.server import Connection, ServerUrl
from orchestration_queue.worker.signals import handling_signals

__all__ = ["develop", "find_home"]

log = get_logger("orchestration_queue.dagster")

_POLL_S = 0.2
_RESTART_S = 3.0
"""The pause before a worker that ended is restarted: its code may not load while the user edits it."""
_END_S = 20.0
"""How long Dagster and the workers may take to end before they are killed."""
_CREATE = "from dagster import DagsterInstance; DagsterInstance.get().dispose()"


def find_home(directory: Path) -> Path:
    """Return the DAGSTER_HOME of a project without one: where its ``dagster.yaml`` is, else a directory in ``.oq``."""
    home = directory if (directory / "dagster.yaml").exists() else directory / ".oq" / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    return home


def develop(server: ServerUrl, dagster: Sequence[str], workers: Sequence[Sequence[str]]) -> int:
    """Run ``dagster dev`` and workers until SIGINT or SIGTERM, or until ``dagster dev`` ends.

    Args:
        server: The queue's server. An embedded one is started, and kept until the end.
        dagster: The command that runs ``dagster dev``.
        workers: The commands that run workers.

    Returns:
        The exit code of ``dagster dev``; 0 when it was stopped.

    Raises:
        TransportError: The server cannot be reached.
    """
    os.environ.setdefault("DAGSTER_HOME", str(find_home(Path.cwd())))
    if server.kind == "embedded":
        os.environ["OQ_URL"] = f"embedded://{server.path}"
    must_stop = threading.Event()
    with handling_signals(lambda *_: must_stop.set()), Connection.open(server):
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, lambda *_: None)  # SIGINT ends the programs, which would inherit SIG_IGN
        _create_storage()
        children = [_Program(command) for command in (dagster, *workers)]
        try:
            return _watch(children, must_stop)
        finally:
            for child in children:
                child.ask_to_end()
            deadline = time.monotonic() + _END_S
            for child in children:
                child.end(deadline)


def _create_storage() -> None:
    """Create the files of a new DAGSTER_HOME: Dagster's processes fail when several of them do so at once."""
    if not Path(os.environ["DAGSTER_HOME"], "history", "runs.db").exists():
        # Dagster reports by itself what is wrong with a home.
        subprocess.run([sys.executable, "-c", _CREATE], stdin=subprocess.DEVNULL, capture_output=True, check=False)


def _watch(children: Sequence[_Program], must_stop: threading.Event) -> int:
    server, *workers = children
    while not must_stop.wait(_POLL_S):
        if (code := server.exit_code) is not None:
            return code
        for worker in workers:
            worker.restart_if_ended()
    return 0


class _Program:
    """A command that runs beside this process, in its own process group.

    Args:
        command: The program and its arguments.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process = self._start()
        self._ended_at: float | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        # In a session of its own: Ctrl-C reaches this process alone, and the whole group can be killed.
        return subprocess.Popen(self._command, start_new_session=True)

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def restart_if_ended(self) -> None:
        """Restart it some seconds after it has ended."""
        now = time.monotonic()
        if self.exit_code is None:
            return
        if self._ended_at is None:
            log.warning("The worker ended with code %s; it starts again in %g s.", self.exit_code, _RESTART_S)
            self._ended_at = now
        elif now - self._ended_at >= _RESTART_S:
            self._process, self._ended_at = self._start(), None

    def ask_to_end(self) -> None:
        if self.exit_code is None:
            self._process.send_signal(signal.SIGINT)

    def end(self, deadline: float) -> None:
        """Wait until it has ended, and kill the processes that it left."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
