"""How a worker takes, keeps and limits jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import Options
from orchestration_queue.options.durations import DurationField, NonNegative, Positive
from orchestration_queue.options.job import RateLimit

__all__ = ["Batch", "TokenLimit", "WorkerOptions", "checked_concurrency"]

_MOST_SLOTS = 10_000


def checked_concurrency(value: int) -> int:
    """Return how many jobs a worker is to run at a time.

    Raises:
        InvalidOptionError: It is no whole number from 1 to 10,000.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_SLOTS:
        raise InvalidOptionError(
            f"`concurrency` must be a whole number from 1 to {_MOST_SLOTS:,}, got {value!r}; "
            "to stop a worker from taking jobs, pause it."
        )
    return value


class Batch(Options):
    """Hand several jobs to one call of the handler."""

    size: Annotated[int, Field(ge=1, le=1000)]
    """At most this many jobs a call."""
    timeout: NonNegative = timedelta(0)
    """How long to wait for a full batch after its first job; 0 takes what is there."""


class TokenLimit(Options):
    """At most ``max_tokens`` spent in each window of ``duration``, as the jobs report them."""

    max_tokens: Annotated[int, Field(gt=0)]
    duration: Positive = timedelta(minutes=1)
    scope: Literal["worker", "queue", "both"] = "both"
    """Whose spending counts: this worker's, that of all workers of the queue, or either."""


class WorkerOptions(Options):
    """How a worker takes and keeps jobs."""

    concurrency: Annotated[int, Field(ge=1, le=_MOST_SLOTS)] = 1
    """Jobs at a time in this process."""
    lease: Annotated[DurationField, Field(ge=timedelta(seconds=1), le=timedelta(days=1))] = timedelta(seconds=30)
    """A job without a heartbeat for this long is taken by another worker."""
    stalled_interval: Annotated[DurationField, Field(ge=timedelta(milliseconds=100))] = timedelta(seconds=30)
    """How often to look for such jobs."""
    max_stalled: Annotated[int, Field(ge=0)] = 1
    """How often a job may be taken over before it fails."""
    promotion_interval: Annotated[DurationField, Field(ge=timedelta(milliseconds=50))] = timedelta(seconds=5)
    """The longest pause between two checks of delayed jobs and schedules; due ones are found earlier."""
    block: Annotated[DurationField, Field(gt=timedelta(0))] = timedelta(seconds=2)
    """The longest single wait for a new job. LIFO jobs, which end no wait, start within this time on an idle worker."""
    drain: NonNegative = timedelta(seconds=30)
    """On shutdown, how long running jobs may take to finish before they are left to another worker."""
    honor_pause: bool = True
    """Stop taking jobs while the queue is paused (Node's workers never do)."""
    run_schedulers: bool = True
    """Take part in firing the queue's repeatable jobs."""
    flow_interval: Annotated[DurationField, Field(ge=timedelta(milliseconds=100))] = timedelta(seconds=5)
    """How often to reconcile the flows of the queue: their timeouts, their end, and what died workers left open."""
    abandon_flows_after: Positive = timedelta(minutes=5)
    """How long a flow's submission may take before what there is of it is removed."""
    rate_limit: RateLimit | None = None
    """Maximum job starts per window across all workers. A limit set on the queue takes precedence."""
    token_limit: TokenLimit | None = None
    """Maximum tokens per window."""
    batch: Batch | None = None
    """Hand jobs to the handler in batches; None hands them one by one."""
    dead_letter_queue: str | None = None
    """Where a copy of each job goes that failed for good; None keeps it only among the failed ones."""
    code_version: Annotated[str, Field(max_length=200)] = ""
    """The version of the code that it runs, such as a commit; shown with the queue's workers."""
    emit_events: bool = True
    """Emit ``completed`` events. Disable to save one stream entry per job."""
    record_metrics: bool = True
    """Count completed jobs for :meth:`Queue.metrics`."""
