"""Worker processes of these tests: quick to notice things."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import redis

from tests.processes import running_process, worker_process
from tests.waiting import wait_until_sync

__all__ = ["BUSY_S", "LEASE_S", "cli_worker", "insist", "is_waiting", "kill", "odd_worker", "suspend"]

LEASE_S = 1.0
"""Where it does no harm that a busy machine keeps a living worker from renewing it in time."""
BUSY_S = 30.0
"""What a busy machine may add to the time in which a process starts, or a worker does something."""
_MAIN = "tests.chaos.worker_main"
_QUICK = ("--stalled-interval", "0.5", "--promotion-interval", "0.2")


def cli_worker(
    queue: str, url: str, *, concurrency: int = 1, lease_s: float = LEASE_S, log: Path | None = None
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A worker as a user would start it."""
    how = ("--concurrency", str(concurrency), "--lease", f"{lease_s:g}", *_QUICK)
    return worker_process("tests.chaos.jobs:tasks", queue, url, *how, log=log)


def odd_worker(
    queue: str, url: str, *, ahead_s: float = 0, jump_s: float = 0, log: Path | None = None, **options: object
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A worker with a wrong clock, or with options that the command has not."""
    quick = {"lease": LEASE_S, "stalled_interval": 0.5, "promotion_interval": 0.2, **options}
    words = [sys.executable, "-m", _MAIN, queue, json.dumps(quick), str(ahead_s), str(jump_s)]
    return running_process(words, url, log)


def is_waiting(raw: redis.Redis) -> bool:
    """Whether a worker has just begun to wait for jobs: within the last second."""
    # It waits for signals with another command all the time.
    waiting = [client for client in raw.client_list() if client["cmd"] == "xreadgroup"]
    return any("b" in client["flags"] and client["idle"] == "0" for client in waiting)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a worker and what it started, at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def insist(process: subprocess.Popen[bytes], seconds: float = 60) -> int:
    """Send SIGTERM until the process has ended; return its exit code."""

    def ends() -> bool:
        process.send_signal(signal.SIGTERM)
        return process.poll() is not None

    wait_until_sync(ends, "the process to end", seconds)
    return process.wait()


def suspend(process: subprocess.Popen[bytes]) -> None:
    """Stop a process; returns when all of its threads have."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
