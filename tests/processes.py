"""Real worker processes for tests, as a user would start them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OQ = str(Path(sys.executable).with_name("oq"))
"""The command, beside this interpreter."""


@contextmanager
def worker_process(target: str, queue: str, url: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """An `oq worker` of its own process group; killed in the end if it still lives."""
    command = [OQ, "worker", target, "--queue", queue, *arguments]
    process = subprocess.Popen(command, env={**os.environ, "OQ_URL": url}, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
