"""Whether a job of Dagster's can still be expected to end by itself: one judgement for steps and for runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = [
    "CRASHED",
    "LEASE_GRACE_S",
    "LOST",
    "OVERTIME",
    "STOPPED",
    "Cause",
    "Condition",
    "JobHealth",
    "cause_of",
    "judge",
    "last_lines",
]

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
    """Return the last lines that a work wrote to its standard error, as far as it told where that is."""
    path = Path(note.get("stderr", ""))
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-_LINES:])


LEASE_GRACE_S = 1.0
"""Added to a lease before it counts as expired: clocks differ, and renewals take time."""


class Condition(Enum):
    """The condition of a job."""

    UNKNOWN = "unknown"
    COMPLETED = "completed"
    FAILED = "failed"
    SILENT = "silent"
    """Its worker no longer renews its lease."""
    OPEN = "open"
    """It waits for a worker, or a worker has it."""


@dataclass(frozen=True, slots=True)
class JobHealth:
    """The health of a job.

    Attributes:
        condition: Its condition.
        message: The same as a clause for logs and events.
        cause: Why it ended, if it did without reporting to Dagster.
    """

    condition: Condition
    message: str
    cause: Cause = Cause.LOST


def judge(where: str, record: JobRecord | None, silent_s: float, lease_s: float) -> JobHealth:
    """Return the health of a job.

    Args:
        where: The job and its queue, as the subject of a clause.
        record: The job; None when its queue does not have it.
        silent_s: How long ago its worker renewed its lease.
        lease_s: How long a lease lasts; 0 when that is unknown.
    """
    if record is None or "state" not in record.fields:
        return JobHealth(Condition.UNKNOWN, f"{where} is unknown there: it was removed, or the server has lost it")
    match record.state:
        case JobState.COMPLETED:
            return JobHealth(Condition.COMPLETED, f"{where} is done")
        case JobState.FAILED:
            reason = record.failed_reason or "without a reason"
            return JobHealth(Condition.FAILED, f"{where} failed: {reason}", cause_of(reason))
        case JobState.ACTIVE if lease_s and silent_s > lease_s + LEASE_GRACE_S:
            message = f"the worker of {where} has given no sign of life for {silent_s:.0f} s, and its lease has ended"
            return JobHealth(Condition.SILENT, message)
        case state:
            return JobHealth(Condition.OPEN, f"{where} is {state}")
