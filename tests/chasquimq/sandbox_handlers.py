"""Handlers that run in sandbox processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.wires.chasquimq import ChasquiJob


def report(job: ChasquiJob) -> dict[str, Any]:
    """Return what the job and its environment are, and leave a file."""
    seen = {"process": os.getpid(), "directory": str(Path.cwd()), "found": [*map(str, Path().iterdir())]}
    Path("trace").write_text("what a job leaves", encoding="utf-8")
    return {**seen, "id": job.id, "attempt": job.attempt, "data": job.data, "at": job.created_at.timestamp()}


def break_down(job: ChasquiJob) -> Any:
    """End as the job's name says."""
    if job.name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.name == "hopeless":
        raise UnrecoverableError("never")
    if job.name == "unpackable":
        return 2**70
    if job.name == "hangs":
        time.sleep(600)
    raise KeyError("column")
