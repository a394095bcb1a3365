"""The tree of errors: whole, exported, and what its docstring says."""

from __future__ import annotations

from datetime import timedelta

import pytest

import orchestration_queue
from orchestration_queue import RateLimitError, UsageError, errors
from orchestration_queue.errors import STALLED_REASON, JobFailedError


def test_every_error_is_exported_at_the_top_level_and_in_the_docstring() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    own = {kind.__name__ for kind in kinds if kind.__module__ == errors.__name__}
    assert own == set(errors.__all__)
    for name in own:
        assert getattr(orchestration_queue, name) is getattr(errors, name)
        assert name in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("given", "delay"),
    [(None, None), (5, timedelta(seconds=5)), (0.5, timedelta(seconds=0.5)), (-1, timedelta(0, -1))],
)
def test_a_rate_limit_takes_seconds_for_a_duration(given: float | None, delay: timedelta | None) -> None:
    assert RateLimitError(given).delay == delay


@pytest.mark.parametrize("given", ["5", True, [], float("nan"), float("inf"), 1e300])
def test_a_rate_limit_refuses_what_is_no_duration(given: object) -> None:
    with pytest.raises(UsageError, match="`delay` must be a timedelta or seconds"):
        RateLimitError(given)  # type: ignore[arg-type]  # what is tested


def test_a_job_that_stalled_too_often_has_advice() -> None:
    (advice,) = JobFailedError("q", "1", STALLED_REASON).__notes__
    assert advice.endswith("make the handler sandboxed.")
    assert not hasattr(JobFailedError("q", "1", "boom"), "__notes__")
