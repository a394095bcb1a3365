"""A worker's options, and its observer."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from orchestration_queue.options import RateLimit
from orchestration_queue.options.durations import DurationField, NonNegative
from orchestration_queue.wires.limits import WireWorkerOptions

__all__ = ["ChasquiObserver", "ChasquiWorkerOptions"]

_Lease = Annotated[DurationField, Field(ge=timedelta(milliseconds=100), le=timedelta(days=1))]


class ChasquiWorkerOptions(WireWorkerOptions):
    """Options of a worker. The defaults are the original's; durations may be numbers of seconds."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Concurrent jobs."""

    attempts: Annotated[int, Field(ge=0, le=2**32 - 1)] = 25
    """How often a job's handler may run, unless the job says otherwise."""

    lease: _Lease = timedelta(seconds=30)
    """How long a job may go without a renewed lease before another worker takes it over."""

    max_payload_bytes: Annotated[int, Field(ge=1)] = 1_048_576
    """Maximum size of a job; larger ones become dead letters."""

    store_results: bool = False
    """Keep what handlers return."""

    result_ttl: Annotated[DurationField, Field(gt=timedelta(0), le=timedelta(days=3650))] = timedelta(hours=1)
    """How long results are kept, rounded up to whole seconds."""

    emit_events: bool = True
    """Add entries to the queue's event stream."""

    run_promoter: bool = True
    """Take part in promoting delayed jobs."""

    run_schedulers: bool = True
    """Take part in running repeatable jobs."""

    group: Annotated[str, Field(min_length=1)] = "default"
    """The consumer group. All workers of a queue must share one."""

    max_length: Annotated[int, Field(ge=1)] = 1_000_000
    """About how many jobs the stream may hold."""

    max_dead_letters: Annotated[int, Field(ge=1)] = 100_000
    """About how many dead letters are kept."""

    rate_limit: RateLimit | None = None
    """Maximum jobs to take per window, across all workers with this limit; those of the original don't count."""

    shutdown_timeout: NonNegative = timedelta(seconds=30)
    """How long running jobs may take to finish after `stop`."""


class ChasquiObserver:
    """Called on the worker's event loop for each event. Override the methods you need, and return quickly."""

    def read(self, entries: int, reclaimed: int) -> None:
        """Record that a read returned this many entries, `reclaimed` of them from workers that lost them."""

    def completed(self, name: str, seconds: float) -> None:
        """Record that a handler returned."""

    def failed(self, name: str, seconds: float) -> None:
        """Record that a handler raised."""

    def retried(self, name: str, pause_s: float) -> None:
        """Record that a job was put back for its next attempt."""

    def buried(self, name: str, reason: str) -> None:
        """Record that a job was moved to the dead-letter queue."""

    def promoted(self, jobs: int, delayed: int) -> None:
        """Record that this worker, as the promoter, made `jobs` ready; `delayed` are left."""

    def led(self, leads: bool) -> None:
        """Record that this worker has become the promoter, or no longer is."""
