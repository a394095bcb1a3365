"""What an exchange says about a job that a worker gives up, and the server's verdict."""

from __future__ import annotations

from enum import Enum

from orchestration_queue.options import Retention
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.lease import (
    KEEP,
    ChildrenWait,
    Completion,
    Failure,
    GroupHold,
    Lease,
    Postponement,
    Settlement,
    Suspension,
)

__all__ = ["Verdict", "settled"]


class Verdict(Enum):
    """What became of an outcome we told."""

    COMPLETED = "c"
    RETRYING = "r"
    FAILED = "f"
    DELAYED = "d"
    WAITING_CHILDREN = "w"
    READY = "a"
    """It was to wait for its children, and all have completed: it is ready again."""
    SUSPENDED = "s"
    HELD = "g"
    """It is parked, and its group is held back."""
    LOST = "l"
    """The job was no longer ours; nothing was changed."""


def settled(settlement: Settlement) -> oq1.Settled:
    """Return a settlement as the server's function takes it."""
    match settlement:
        case Completion(lease, result, retention):
            return _told("c", lease, result, retention=retention)
        case Failure(lease, reason, max_attempts, backoff_ms, retention):
            return _told("f", lease, reason, wait_ms=backoff_ms, max_attempts=max_attempts, retention=retention)
        case Postponement(lease, until_ms, data):
            return _told("d", lease, data, wait_ms=until_ms)
        case ChildrenWait(lease):
            return _told("w", lease)
        case Suspension(lease, reason, timeout_ms):
            return _told("s", lease, reason, wait_ms=timeout_ms)
        case GroupHold(lease, duration_ms, job, is_extending):
            return _told("g", lease, job, wait_ms=duration_ms, extend=is_extending)


def _told(
    kind: str,
    lease: Lease,
    payload: str = "",
    *,
    wait_ms: int = 0,
    max_attempts: int = 0,
    extend: bool = False,
    retention: Retention = KEEP,
) -> oq1.Settled:
    mode, count, age_s = retention.wire_arguments
    return oq1.Settled(
        kind=kind,
        job_id=lease.job_id,
        entry_id=lease.entry_id,
        taken_ms=lease.taken_ms,
        stalled_count=lease.stalled_count,
        payload=payload,
        wait_ms=wait_ms,
        max_attempts=max_attempts,
        extend=extend,
        remove_mode=mode,
        remove_count=count,
        remove_age_s=age_s,
    )
