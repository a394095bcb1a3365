"""`oq worker --reload`: restart the worker whenever code changes. For development."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from orchestration_queue._extras import named_extra
from orchestration_queue._logging import get_logger
from orchestration_queue.worker.signals import handling_signals

__all__ = ["run_with_reload"]

_WATCHED = """\
import signal, sys
from orchestration_queue._process import die_with_parent
from orchestration_queue.cli import run

die_with_parent(int(sys.argv.pop(1)), signal.SIGTERM)
signal.signal(signal.SIGINT, signal.SIG_IGN)
run()
"""
"""The program of the watched process, which is stopped when the watching process ends for any reason.

It leaves a terminal's Ctrl-C, which reaches both, to the watching process.
"""
_logger = get_logger(__name__)


def run_with_reload(arguments: Sequence[str], directory: Path) -> int:
    """Run `oq` in a separate process, restarted whenever a Python file below the directory changes.

    The process is asked to stop first and finishes its jobs. If it fails, the next change starts it again.

    Args:
        arguments: What follows `oq`.
        directory: What to watch.

    Returns:
        The exit code of the last process, once this one was stopped by SIGTERM or SIGINT.

    Raises:
        MissingExtraError: The package watchfiles is missing.
    """
    with named_extra():
        from watchfiles import PythonFilter, watch
    stopped = threading.Event()
    running = _start(arguments)

    def stop(_number: int, _frame: object) -> None:
        stopped.set()
        running.terminate()

    with handling_signals(stop):
        for changes in watch(directory, watch_filter=PythonFilter(), stop_event=stopped, raise_interrupt=False):
            changed = ", ".join(sorted({os.path.relpath(path, directory) for _, path in changes}))
            _logger.info("Restarting after a change in %s", changed)
            running.terminate()
            running.wait()
            if stopped.is_set():
                break
            running = _start(arguments)
            if stopped.is_set():  # a signal that arrived meanwhile went to the previous process
                running.terminate()
        return running.wait()


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _WATCHED, str(os.getpid()), *arguments])
