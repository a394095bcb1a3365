"""A worker's options, and its observer."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from orchestration_queue.options import RateLimit
from orchestration_queue.options.durations import DurationField, NonNegative
from orchestration_queue.wires.limits import WireWorkerOptions
from orchestration_queue.wires.qless.records import QlessJob

__all__ = ["Outcome", "QlessObserver", "QlessWorkerOptions"]


Outcome = Literal["completed", "advanced", "failed", "retried"]


class QlessWorkerOptions(WireWorkerOptions):
    """How jobs are taken, renewed and retried. Durations may be numbers of seconds."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Concurrent jobs."""

    order: Literal["ordered", "round-robin"] = "ordered"
    """`ordered` empties the first queue before it polls the next; `round-robin` alternates between them."""

    interval: Annotated[DurationField, Field(ge=timedelta(milliseconds=10))] = timedelta(seconds=1)
    """How long to wait before polling again if no queue had a job."""

    retry_delay: NonNegative | None = None
    """Retry a job whose handler raised after this long, while it has retries left.

    None fails it immediately, as other clients do.
    """

    rate_limit: RateLimit | None = None
    """Maximum jobs to take per window from each queue, across all workers with this limit.

    Those of other clients don't count.
    """

    shutdown_timeout: NonNegative = timedelta(seconds=30)
    """How long running jobs may take to finish after `stop`."""


class QlessObserver:
    """Called on the worker's event loop for each event. Override the methods you need, and return quickly."""

    def taken(self, queue: str, jobs: int) -> None:
        """Record that the worker asked a queue and got this many jobs."""

    def ended(self, job: QlessJob, outcome: Outcome, seconds: float) -> None:
        """Record that a handler ended, and the outcome to send; a retry without retries left fails on the server."""

    def lost(self, job: QlessJob) -> None:
        """Record that the worker lost a running job."""
