"""What a record says of its job's failure and result, whichever client wrote it."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.record import JobRecord


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, None),
        ({"failedReason": "broken"}, "error"),
        ({"failedReason": "revoked"}, "cancelled"),
        ({"failedReason": "revoked", "failureKind": "ValueError"}, "ValueError"),
        ({"failedReason": "broken", "failureKind": "timeout"}, "timeout"),
        # Noted with the last attempt, and before one that another client's worker did.
        ({"failedReason": "b", "failureKind": "ValueError", "failureAttempt": "2", "attemptsMade": "2"}, "ValueError"),
        ({"failedReason": "b", "failureKind": "ValueError", "failureAttempt": "2", "attemptsMade": "3"}, "error"),
        # The server writes these itself, with no attempt.
        ({"failedReason": "b", "failureKind": "stalled", "failureAttempt": "2", "attemptsMade": "3"}, "stalled"),
        ({"failureAttempt": "2", "attemptsMade": "3"}, None),
    ],
)
def test_a_kind_is_that_of_the_last_attempt(fields: dict[str, str], kind: str | None) -> None:
    assert JobRecord("1", fields).failure_kind == kind


def test_a_traceback_is_that_of_the_last_attempt() -> None:
    fields = {"traceback": "there", "failureAttempt": "2", "attemptsMade": "2"}
    assert JobRecord("1", fields).traceback == "there"
    assert JobRecord("1", {**fields, "attemptsMade": "3"}).traceback is None
    assert JobRecord("1", {}).traceback is None


def test_results_and_progress_are_read_and_absent_before() -> None:
    assert JobRecord("1", {}).result is None
    assert JobRecord("1", {"returnvalue": "[1]"}).result == [1]
    assert JobRecord("1", {}).progress is None
    assert JobRecord("1", {"progress": "50"}).progress == 50
    assert JobRecord("1", {"progress": "half {"}).progress == "half {"
