"""Serve the task logs of a worker's machine to Airflow's UI, as Celery's workers do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from orchestration_queue._process import die_with_parent

__all__ = ["main", "serving_logs"]

_LEAVE_S = 5.0


@contextmanager
def serving_logs() -> Iterator[None]:
    """Run Airflow's log server as long as the context lasts, on ``[logging] worker_log_server_port``."""
    program = f"from orchestration_queue.airflow.log_server import main; main({os.getpid()})"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_LEAVE_S)


def main(parent: int) -> None:
    """Serve logs until the worker ends."""
    die_with_parent(parent, signal.SIGTERM)
    from airflow.utils.serve_logs import serve_logs

    serve_logs()
