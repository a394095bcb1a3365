"""A queue's settings for its jobs and workers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, TypedDict

from pydantic import Field

from orchestration_queue.options.base import MAX_COUNT, Options
from orchestration_queue.options.durations import MAX_DURATION, Duration, DurationField, Positive, milliseconds
from orchestration_queue.options.job import Backoff, JobOptions, RateLimit, Retention
from orchestration_queue.options.wire import backoff_from_wire, lease_from_wire, retention_from_wire, wire_number

__all__ = ["QueueSettings", "QueueSettingsFields"]


class QueueSettingsFields(TypedDict, total=False):
    """The fields of :class:`QueueSettings`, as keyword arguments."""

    attempts: int | None
    backoff: Backoff | None
    timeout: Duration | None
    remove_on_complete: Retention | None
    remove_on_fail: Retention | None
    lease: Duration | None
    dead_letter_queue: str | None
    concurrency: int | None
    rate_limit: RateLimit | None


class QueueSettings(Options):
    """A queue's settings for its jobs and workers. None means not set.

    The first five apply to jobs for which neither the producer nor the task set such an option. The lease takes
    precedence over the workers' own, but not over a job's. The dead-letter queue and the rate limit take precedence
    over the workers' own.
    """

    WIRE_NAMES: ClassVar = ("attempts", "backoff", "timeout", "removeOnComplete", "removeOnFail", "lockDuration")
    """The wire's names of the first fields, in their order."""

    attempts: Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)] | None = None
    """Maximum attempts."""
    backoff: Backoff | None = None
    """The pause before a retry."""
    timeout: Positive | None = None
    """How long a handler may run."""
    remove_on_complete: Retention | None = None
    """Which completed jobs to keep."""
    remove_on_fail: Retention | None = None
    """Which failed jobs to keep."""
    lease: Annotated[DurationField, Field(ge=timedelta(seconds=1), le=timedelta(days=1))] | None = None
    """How long a job may go without a renewed lease before another worker takes it over."""
    dead_letter_queue: Annotated[str, Field(min_length=1)] | None = None
    """The queue for dead letters: copies of jobs that failed for good."""
    concurrency: Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)] | None = None
    """Maximum jobs that all workers together run at a time."""
    rate_limit: RateLimit | None = None
    """Maximum job starts per window across all workers."""

    def wire_changes(self) -> dict[str, Any]:
        """Return the given job options with the wire's names and units; None for those given as None."""
        names = dict(zip(type(self).model_fields, self.WIRE_NAMES, strict=False))
        said = {name: getattr(self, name) for name in names if name in self.model_fields_set}
        wire = JobOptions(**{name: value for name, value in said.items() if value is not None}).wire()
        return {names[name]: wire.get(names[name]) for name in said}

    @staticmethod
    def from_wire(
        stored: Mapping[str, Any],
        dead_letter_queue: str | None = None,
        concurrency: int | None = None,
        rate_limit: RateLimit | None = None,
    ) -> QueueSettings:
        """Read stored settings, without invalid ones."""
        lease_ms = lease_from_wire(stored.get("lockDuration"))
        attempts = int(wire_number(stored.get("attempts"), MAX_COUNT))
        timeout_ms = wire_number(stored.get("timeout"), milliseconds(MAX_DURATION))
        return QueueSettings.model_construct(
            attempts=attempts or None,
            backoff=backoff_from_wire(stored),
            timeout=timedelta(milliseconds=timeout_ms) if timeout_ms else None,
            remove_on_complete=retention_from_wire(stored.get("removeOnComplete")),
            remove_on_fail=retention_from_wire(stored.get("removeOnFail")),
            lease=timedelta(milliseconds=lease_ms) if lease_ms else None,
            dead_letter_queue=dead_letter_queue,
            concurrency=concurrency,
            rate_limit=rate_limit,
        )
