"""How a worker takes jobs, renews their leases and limits them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import Options
from orchestration_queue.options.durations import DurationField, NonNegative, Positive
from orchestration_queue.options.job import RateLimit

__all__ = ["Batch", "TokenLimit", "WorkerOptions", "check_concurrency"]

_MOST_SLOTS = 10_000


def check_concurrency(value: int) -> int:
    """Return a worker's number of concurrent jobs.

    Raises:
        InvalidOptionError: It is not an integer from 1 to 10,000.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_SLOTS:
        raise InvalidOptionError(
            f"`concurrency` must be a whole number from 1 to {_MOST_SLOTS:,}, got {value!r}; "
            "to stop a worker from taking jobs, pause it."
        )
    return value


class Batch(Options):
    """Pass several jobs to one call of the handler."""

    size: Annotated[int, Field(ge=1, le=1000)]
    """Maximum jobs per call."""
    timeout: NonNegative = timedelta(0)
    """How long to wait for a full batch after its first job; 0 does not wait."""


class TokenLimit(Options):
    """At most ``max_tokens`` in each window of ``duration``, as jobs report them."""

    max_tokens: Annotated[int, Field(gt=0)]
    duration: Positive = timedelta(minutes=1)
    scope: Literal["worker", "queue", "both"] = "both"
    """Whose tokens count: those of this worker, of all workers of the queue, or either."""


class WorkerOptions(Options):
    """How a worker takes jobs, renews their leases and limits them."""

    concurrency: Annotated[int, Field(ge=1, le=_MOST_SLOTS)] = 1
    """Concurrent jobs in this process."""
    lease: Annotated[DurationField, Field(ge=timedelta(seconds=1), le=timedelta(days=1))] = timedelta(seconds=30)
    """A job whose lease was not renewed for this long is stalled, and another worker takes it over."""
    stalled_interval: Annotated[DurationField, Field(ge=timedelta(milliseconds=100))] = timedelta(seconds=30)
    """How often to look for stalled jobs."""
    max_stalled: Annotated[int, Field(ge=0)] = 1
    """How often a job may be taken over before it fails."""
    promotion_interval: Annotated[DurationField, Field(ge=timedelta(milliseconds=50))] = timedelta(seconds=5)
    """Maximum pause between two checks of delayed jobs and schedules; due ones are found earlier."""
    block: Annotated[DurationField, Field(gt=timedelta(0))] = timedelta(seconds=2)
    """Maximum duration of a blocking read. An idle worker starts LIFO jobs, which don't end it, within this time."""
    drain: NonNegative = timedelta(seconds=30)
    """On shutdown, how long running jobs may take to finish before they are left to another worker."""
    honor_pause: bool = True
    """Take no jobs while the queue is paused (Node workers ignore pauses)."""
    run_schedulers: bool = True
    """Take part in running the queue's repeatable jobs."""
    flow_interval: Annotated[DurationField, Field(ge=timedelta(milliseconds=100))] = timedelta(seconds=5)
    """How often to reconcile the queue's flows: timeouts, completion, and what dead workers left unfinished."""
    abandon_flows_after: Positive = timedelta(minutes=5)
    """How long a flow's submission may take before its incomplete jobs are removed."""
    rate_limit: RateLimit | None = None
    """Maximum job starts per window across all workers. A limit set on the queue takes precedence."""
    token_limit: TokenLimit | None = None
    """Maximum tokens per window."""
    batch: Batch | None = None
    """Pass jobs to the handler in batches; None passes them one by one."""
    dead_letter_queue: str | None = None
    """The queue for dead letters, copies of jobs that failed for good; None keeps only the failed jobs."""
    code_version: Annotated[str, Field(max_length=200)] = ""
    """The version of the code that it runs, such as a commit; shown with the queue's workers."""
    emit_events: bool = True
    """Emit ``completed`` events. Disable to save one stream entry per job."""
    emit_step_events: bool = False
    """Emit a ``step`` event when a durable step has ended or begun to sleep: one stream entry each."""
    record_metrics: bool = True
    """Count completed jobs for :meth:`Queue.metrics`."""
