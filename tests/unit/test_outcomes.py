"""How a handler's end becomes a settlement: attempts, pauses, kinds and tracebacks."""

from __future__ import annotations

import json
import traceback
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.errors import PayloadError, RateLimitError, UnrecoverableError
from orchestration_queue.protocol import codec, outcome
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.spark.failure import SparkFailure
from orchestration_queue.worker.sandbox.frames import dump_error

BACKOFF = {"type": "exponential", "delay": 1000}


def lease(attempts_made: int = 0, **options: Any) -> Lease:
    return Lease(JobRecord("7", {"attemptsMade": str(attempts_made), "opts": json.dumps(options)}), "1-0")


@pytest.mark.parametrize(
    ("error", "is_discarded", "attempts"),
    [
        (ValueError("no"), False, 3),
        (ValueError("no"), True, 0),
        (UnrecoverableError("no"), False, 0),
        (UnrecoverableError("no"), True, 0),
    ],
)
def test_a_job_that_gave_up_is_not_retried(error: Exception, is_discarded: bool, attempts: int) -> None:
    settled = outcome.failed(lease(attempts=3, backoff=BACKOFF), error, 0.0, is_discarded=is_discarded)
    assert (settled.max_attempts, settled.backoff_ms) == (attempts, 1000 if attempts else 0)


@pytest.mark.parametrize(("attempts_made", "backoff_ms"), [(0, 1000), (1, 2000), (2, 4000)])
def test_the_pause_grows_with_the_attempts_that_failed(attempts_made: int, backoff_ms: int) -> None:
    held = lease(attempts_made, attempts=9, backoff=BACKOFF)
    assert outcome.failed(held, ValueError(), 0.0).backoff_ms == backoff_ms
    strategies = {"mine": lambda failures, _: timedelta(seconds=failures)}
    held = lease(attempts_made, attempts=9, backoff={"type": "mine", "delay": 5})
    assert outcome.failed(held, ValueError(), 0.0, strategies=strategies).backoff_ms == 1000 * (attempts_made + 1)


@pytest.mark.parametrize(("delay", "backoff_ms"), [(None, 9000), (2, 2000), (0, 0)])
def test_a_rate_limited_job_has_another_attempt_after_its_delay(delay: float | None, backoff_ms: int) -> None:
    settled = outcome.rate_limited(lease(4), RateLimitError(delay), timedelta(seconds=9))
    assert settled.backoff_ms == backoff_ms
    assert settled.max_attempts == 6, "this attempt is the fifth to fail, and there is one more"


def test_a_traceback_begins_in_the_user_s_code() -> None:
    with pytest.raises(PayloadError) as caught:
        codec.decode("{")
    traced = outcome.traceback_of(caught.value)
    assert __file__ in traced
    assert codec.__file__ not in traced


def test_a_failure_is_recorded_although_its_traceback_cannot_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before Python 3.11.8, where two threads that format a traceback at once may fail with a SystemError."""

    def fail(*_: Any) -> Any:
        raise SystemError("AST constructor recursion depth mismatch (before=150, after=238)")

    monkeypatch.setattr(traceback.TracebackException, "format", fail)
    monkeypatch.setattr(traceback.StackSummary, "format", fail)
    error = ValueError("no such city")
    assert outcome.failed(lease(0, attempts=2), error, 0.0).traceback == "ValueError: no such city"
    assert dump_error(error, lease(0))["traceback"] == "ValueError: no such city"
    assert SparkFailure.of(error).message == "no such city"
