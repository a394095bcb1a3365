"""What a queue sets for jobs that were added without options of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, TypedDict

from pydantic import Field

from orchestration_queue.options.base import MAX_COUNT, Options
from orchestration_queue.options.durations import MAX_DURATION, Duration, Positive, milliseconds
from orchestration_queue.options.job import Backoff, JobOptions, Retention
from orchestration_queue.options.wire import backoff_from_wire, retention_from_wire, wire_number

__all__ = ["JobDefaults", "JobSettings"]


class JobSettings(TypedDict, total=False):
    """The fields of :class:`JobDefaults`, as keyword arguments."""

    attempts: int | None
    backoff: Backoff | None
    timeout: Duration | None
    remove_on_complete: Retention | None
    remove_on_fail: Retention | None


class JobDefaults(Options):
    """Options of jobs that neither their adder nor their task gave any. None sets nothing."""

    WIRE_NAMES: ClassVar = ("attempts", "backoff", "timeout", "removeOnComplete", "removeOnFail")

    attempts: Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)] | None = None
    """Tries in all."""
    backoff: Backoff | None = None
    """The pause before a retry."""
    timeout: Positive | None = None
    """The handler's time limit."""
    remove_on_complete: Retention | None = None
    """Which completed jobs to keep."""
    remove_on_fail: Retention | None = None
    """Which failed jobs to keep."""

    def wire_changes(self) -> dict[str, Any]:
        """The fields that were given, in the wire's names and units; None of those that were given as None."""
        said = {name: getattr(self, name) for name in self.model_fields_set}
        wire = JobOptions(**{name: value for name, value in said.items() if value is not None}).wire()
        names = dict(zip(type(self).model_fields, self.WIRE_NAMES, strict=True))
        return {names[name]: wire.get(names[name]) for name in said}

    @staticmethod
    def from_wire(stored: Mapping[str, Any]) -> JobDefaults:
        """Read what is stored; what is odd in it is left out."""
        attempts = int(wire_number(stored.get("attempts"), MAX_COUNT))
        timeout_ms = wire_number(stored.get("timeout"), milliseconds(MAX_DURATION))
        return JobDefaults.model_construct(
            attempts=attempts or None,
            backoff=backoff_from_wire(stored),
            timeout=timedelta(milliseconds=timeout_ms) if timeout_ms else None,
            remove_on_complete=retention_from_wire(stored.get("removeOnComplete")),
            remove_on_fail=retention_from_wire(stored.get("removeOnFail")),
        )
