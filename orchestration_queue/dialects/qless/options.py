"""How a worker runs its jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from orchestration_queue.dialects.options import DialectOptions
from orchestration_queue.options import RateLimit
from orchestration_queue.options.durations import DurationField, NonNegative

__all__ = ["QlessWorkerOptions"]


class QlessWorkerOptions(DialectOptions):
    """How jobs are taken, kept and retried. Durations may be numbers of seconds."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 10
    """How many jobs run at a time."""

    order: Literal["ordered", "round-robin"] = "ordered"
    """`ordered` empties the first queue before it asks the next; `round-robin` takes from each in turn."""

    interval: Annotated[DurationField, Field(ge=timedelta(milliseconds=10))] = timedelta(seconds=1)
    """How long to wait before asking again when no queue had a job."""

    retry_delay: NonNegative | None = None
    """Retry a job whose handler raised after this long, while it has retries left; None fails it at once, as other
    clients do."""

    rate_limit: RateLimit | None = None
    """The most jobs to take of each queue in a window, over all workers of this limit; those of other clients
    do not count."""

    shutdown_timeout: NonNegative = timedelta(seconds=30)
    """How long running jobs may take to finish after `stop`."""
