"""The judgement whether a job of Dagster's is alive, which steps and runs share."""

from __future__ import annotations

import pytest

from orchestration_queue.dagster.job_health import CRASHED, LEASE_GRACE_S, LOST, Cause, Condition, judge
from orchestration_queue.protocol.record import JobRecord


def a_job(state: str, reason: str = "") -> JobRecord:
    """Return a job in a state."""
    return JobRecord("1", {"state": state, **({"failedReason": reason} if reason else {})})


@pytest.mark.parametrize(
    ("record", "silent_s", "lease_s", "condition", "message"),
    [
        (None, 0, 30, Condition.UNKNOWN, "job 1 does not exist: it was removed, or the server lost it"),
        (JobRecord("1", {}), 0, 30, Condition.UNKNOWN, "job 1 does not exist: it was removed, or the server"),
        (a_job("completed"), 99, 30, Condition.COMPLETED, "job 1 is done"),
        (a_job("failed", "why"), 99, 30, Condition.FAILED, "job 1 failed: why"),
        (a_job("waiting"), 99, 30, Condition.OPEN, "job 1 is waiting"),
        (a_job("active"), 30 + LEASE_GRACE_S, 30, Condition.OPEN, "job 1 is active"),
        (
            a_job("active"),
            31 + LEASE_GRACE_S,
            30,
            Condition.SILENT,
            "the worker of job 1 has not renewed its lease for",
        ),
        (a_job("active"), 99, 0, Condition.OPEN, "job 1 is active"),
    ],
)
def test_the_health_of_a_job(
    record: JobRecord | None, silent_s: float, lease_s: float, condition: Condition, message: str
) -> None:
    health = judge("job 1", record, silent_s, lease_s)
    assert health.condition is condition
    assert health.message.startswith(message)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [(f"{LOST}x", Cause.LOST), (f"{CRASHED}x", Cause.CRASHED), ("the pump stalled", Cause.FAILED)],
)
def test_a_failed_job_has_a_cause(reason: str, cause: Cause) -> None:
    assert judge("job 1", a_job("failed", reason), 0, 30).cause is cause
