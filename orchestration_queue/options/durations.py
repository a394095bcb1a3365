"""Durations: a timedelta, or a number of seconds, everywhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, overload

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from orchestration_queue.errors import InvalidOptionError

__all__ = [
    "MAX_DURATION",
    "Duration",
    "DurationField",
    "NonNegative",
    "Positive",
    "as_timedelta",
    "check_duration",
    "milliseconds",
    "seconds",
]

Duration = timedelta | float
"""A timedelta, or a number of seconds. Option values keep it as a timedelta."""

MAX_DURATION = timedelta(days=3650)
"""The maximum delay: the wire packs due time and priority into one score, which limits it to a few decades."""


class _ReadAsTimedelta:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(timedelta)


DurationField = Annotated[Duration, _ReadAsTimedelta()]
"""The type of a duration in an option value."""
NonNegative = Annotated[DurationField, Field(ge=timedelta(0), le=MAX_DURATION)]
Positive = Annotated[DurationField, Field(ge=timedelta(milliseconds=1), le=MAX_DURATION)]

_MILLISECOND = timedelta(milliseconds=1)


@overload
def as_timedelta(duration: Duration) -> timedelta: ...
@overload
def as_timedelta(duration: Duration | None) -> timedelta | None: ...
def as_timedelta(duration: Duration | None) -> timedelta | None:
    """Return a duration as a timedelta; None stays None."""
    return timedelta(seconds=duration) if isinstance(duration, int | float) else duration


def seconds(duration: Duration) -> float:
    """Return a duration in seconds."""
    return as_timedelta(duration).total_seconds()


def milliseconds(duration: Duration) -> int:
    """Return a duration in whole milliseconds, as the wire has it."""
    found = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    return found // _MILLISECOND


def check_duration(value: Duration, name: str) -> timedelta:
    """Return a duration as a timedelta.

    Raises:
        InvalidOptionError: It is negative, infinite, or not a duration.
    """
    try:
        found = value if isinstance(value, timedelta) else None if isinstance(value, bool) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or found < timedelta(0):
        raise InvalidOptionError(f"`{name}` must be a timedelta or seconds >= 0, got {value!r}; pass `{name}=5`.")
    return found
