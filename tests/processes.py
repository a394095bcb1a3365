"""Real worker processes for tests, as a user would start them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

OQ = str(Path(sys.executable).with_name("oq"))
"""The command, beside this interpreter."""


@contextmanager
def worker_process(
    target: str, queue: str, url: str, *arguments: str, log: Path | None = None, directory: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """An `oq worker`, to be used like :func:`running_process`."""
    command = [OQ, "worker", target, "--queue", queue, *arguments]
    with running_process(command, url, log, directory) as process:
        yield process


@contextmanager
def running_process(
    command: Sequence[str], url: str, log: Path | None = None, directory: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own group, its log in a file if one is given; killed in the end if it lives."""
    with (log or Path(os.devnull)).open("wb") as errors:
        process = subprocess.Popen(
            command,
            env={**os.environ, "OQ_URL": url},
            stderr=errors if log else None,
            start_new_session=True,
            cwd=directory,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def parent_of(pid: int) -> int:
    """The process that has started this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
