"""Judge whether the job of a Dagster step or run will still end on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from orchestration_queue.client import Queue
from orchestration_queue.errors import STALLED_REASON, JobNotFoundError
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = [
    "CRASHED",
    "LEASE_GRACE_S",
    "LOST",
    "OVERTIME",
    "REVOKED",
    "STOPPED",
    "Cause",
    "Condition",
    "JobHealth",
    "cause_of",
    "has_stopped",
    "judge",
    "last_lines",
]

LOST = "Lost: "
"""Prefix of the failure reason of a job whose process was lost; the work itself may be fine."""
CRASHED = "Crashed: "
"""Prefix of the failure reason of a job whose process exited or was killed by a signal."""
STOPPED = "The process has ended."
"""Last log line of a revoked job: its process is gone, whether or not it reported to Dagster."""
OVERTIME = "Job timeout exceeded"
"""Failure reason of a job that exceeded its timeout; every worker of this wire writes it."""
REVOKED = "revoked"
"""Failure reason of a job that was cancelled."""
_LINES = 40
_TAIL_BYTES = 16_384


class Cause(Enum):
    """The cause of a step's end that the step itself did not report."""

    LOST = "StepWorkerLost"
    """Its worker or its fork server is gone; the step itself may be fine."""
    CRASHED = "StepProcessCrashed"
    """Its own process exited or was killed."""
    FAILED = "StepFailed"
    """Anything else, such as a timeout."""


def cause_of(reason: str) -> Cause:
    """Return the cause that the failure reason of a job names."""
    if reason.startswith(CRASHED):
        return Cause.CRASHED
    return Cause.LOST if reason.startswith(LOST) or reason == STALLED_REASON else Cause.FAILED


def last_lines(note: Mapping[str, str]) -> str:
    """Return the last lines of a work item's standard error; empty if it did not report the file."""
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
    """It waits for a worker, or a worker runs it."""


@dataclass(frozen=True, slots=True)
class JobHealth:
    """The health of a job.

    Attributes:
        condition: Its condition.
        message: The condition as a clause for logs and events.
        cause: The cause of its end, if it did not report it to Dagster.
    """

    condition: Condition
    message: str
    cause: Cause = Cause.LOST


def judge(where: str, record: JobRecord | None, silent_s: float, lease_s: float) -> JobHealth:
    """Return the health of a job.

    Args:
        where: The job and its queue, as the subject of a clause.
        record: The job; None when its queue does not have it.
        silent_s: The time since its worker renewed its lease.
        lease_s: The duration of a lease; 0 if unknown.
    """
    if record is None or "state" not in record.fields:
        return JobHealth(Condition.UNKNOWN, f"{where} does not exist: it was removed, or the server lost it")
    match record.state:
        case JobState.COMPLETED:
            return JobHealth(Condition.COMPLETED, f"{where} is done")
        case JobState.FAILED:
            reason = record.failed_reason or "without a reason"
            return JobHealth(Condition.FAILED, f"{where} failed: {reason}", cause_of(reason))
        case JobState.ACTIVE if lease_s and silent_s > lease_s + LEASE_GRACE_S:
            message = f"the worker of {where} has not renewed its lease for {silent_s:.0f} s, and the lease has expired"
            return JobHealth(Condition.SILENT, message)
        case state:
            return JobHealth(Condition.OPEN, f"{where} is {state}")


def has_stopped(queue: Queue, job_id: str) -> bool:
    """Return whether no worker runs a cancelled job; it fails before its worker has stopped it. At most two exchanges.

    Raises:
        TransportError: The server is unreachable.
    """
    try:
        record = queue.get(job_id).record
    except JobNotFoundError:
        return True
    if not record.is_finished:
        return False
    is_stopping = record.failed_reason == REVOKED and record.attempts_made > 0  # none: cancelled before it began
    return not is_stopping or STOPPED in queue.last_logs(job_id, 1)
