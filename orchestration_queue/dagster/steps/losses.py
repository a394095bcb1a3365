"""How work ends without an outcome of its own, in words that the executor and the launcher know again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

__all__ = ["CRASHED", "LOST", "OVERTIME", "STOPPED", "Cause", "cause_of", "last_lines"]

LOST = "Lost: "
"""What the reason of a job begins with whose process was lost: nothing is known against the work itself."""
CRASHED = "Crashed: "
"""How the failure reason of a job begins whose process ended itself: by its exit code, or by a signal."""
STOPPED = "The process has ended."
"""The last line of the log of a job that was revoked: its process is gone, whether it could tell Dagster or not."""
OVERTIME = "Job timeout exceeded"
"""The failure reason of a job that took longer than its timeout; every worker of this wire writes it."""
_STALLED = "job stalled more than maxStalledCount"
_LINES = 40
_TAIL_BYTES = 16_384


class Cause(Enum):
    """Why a step ended that could not report its end."""

    LOST = "StepWorkerLost"
    """Its worker or its fork server is gone; nothing is known against the step itself."""
    CRASHED = "StepProcessCrashed"
    """Its own process exited or was killed."""
    FAILED = "StepFailed"
    """Anything else, such as a timeout."""


def cause_of(reason: str) -> Cause:
    """Return the cause that the failure reason of a job names."""
    if reason.startswith(CRASHED):
        return Cause.CRASHED
    return Cause.LOST if reason.startswith(LOST) or reason == _STALLED else Cause.FAILED


def last_lines(note: Mapping[str, str]) -> str:
    """The last lines that a work wrote to its standard error, as far as it told where that is."""
    path = Path(note.get("stderr", ""))
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-_LINES:])
