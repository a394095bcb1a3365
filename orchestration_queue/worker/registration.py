"""A worker's entry in the registry of its queue."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration_queue._version import __version__
from orchestration_queue.options.base import MAX_NAME_LENGTH
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.worker_registry import MOST_TASKS, NAME_LENGTH
from orchestration_queue.worker.middleware import TaskRegistry

if TYPE_CHECKING:
    from orchestration_queue.worker.worker import Worker

__all__ = ["describe_worker", "task_names"]

_MOST_JOBS = 100
_STATM = Path("/proc/self/statm")


def describe_worker(
    worker: Worker, started_ms: int, leases: Iterable[Lease], tasks: tuple[str, ...]
) -> dict[str, object]:
    """Return the entry: the wire's fields first, then those that only this library reads."""
    oldest = sorted(leases, key=lambda lease: lease.taken_ms)[:_MOST_JOBS]
    return {
        "addr": socket.gethostname(),
        "pid": os.getpid(),
        "startedAt": started_ms,
        "activeJobs": worker.running,
        "jobs": [
            [_plain(lease.job_id, MAX_NAME_LENGTH), _plain(lease.record.name), lease.taken_ms] for lease in oldest
        ],
        "tasks": tasks,
        "concurrency": worker.concurrency,
        "lease": worker.io.defaults.lease_ms,
        "paused": worker.is_paused,
        "memory": _memory_bytes(),
        "version": __version__,
        "codeVersion": worker.options.code_version,
        "reportedAt": worker.io.clock.now_ms(),
    }


def task_names(handler: object) -> tuple[str, ...]:
    """Return the names of a registry's tasks, at most 100; none for a single handler."""
    names = handler.task_names if isinstance(handler, TaskRegistry) else ()
    return tuple(_plain(str(name)) for name in list(names)[:MOST_TASKS])


def _plain(text: str, most: int = NAME_LENGTH) -> str:
    """Return the beginning of a name that any client wrote, as valid JSON text."""
    return text[:most].encode("utf-8", "replace").decode()


def _memory_bytes() -> int:
    """Return the memory that this process uses, or its maximum so far where the system doesn't say."""
    try:
        return int(_STATM.read_text("ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
