"""What sensors on the queues of other systems share: their options, and the loop from what is new to runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar

import dagster as dg

from orchestration_queue.dagster._compat import LISTENS, RunTarget
from orchestration_queue.dagster.checks import checked_function, checked_target, checked_words
from orchestration_queue.dagster.sensors.options import SensorOptions, Shown, sensor_name
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import Duration
from orchestration_queue.options.durations import checked_duration

__all__ = ["EventReading", "Found", "Origin", "checked_interval", "checked_kinds", "checked_wait", "dialect_sensor"]

T = TypeVar("T")

_OURS = "orchestration_queue/"
_LONGEST_TICK = timedelta(seconds=50)
"""Dagster gives up on a sensor after 60 s."""


@dataclass(frozen=True, slots=True)
class EventReading(Generic[T]):
    """What one tick read.

    Attributes:
        wanted: What to react to, oldest first.
        cursor: Where the next tick continues.
        count: How many were read, including those that are not wanted.
    """

    wanted: Sequence[T]
    cursor: str | None
    count: int


Found: TypeAlias = Callable[[T], dg.RunRequest | None]
"""What something found asks for: a run, or nothing."""
Origin: TypeAlias = Callable[[T], tuple[str | None, dict[str, str | None]]]
"""The run key of something found, and the tags that name it."""


def dialect_sensor(
    read: Callable[[Any, str | None], EventReading[T]],
    origin: Origin[T],
    *,
    job: RunTarget,
    name: str | None,
    names: Sequence[str],
    react: Found[T] | None,
    what: str,
    interval: int,
    resource_key: str,
    description: str,
    options: SensorOptions,
) -> dg.SensorDefinition:
    """Build a sensor that requests a run for each thing found.

    Args:
        read: Read what is new, given the resource and the cursor.
        origin: The run key and the tags of what was found; a reaction's own go first.
        job: What its runs execute.
        name: The sensor's name; default made of `names`.
        names: What kind of sensor it is, and of what.
        react: What to request; default a run.
        what: What it reads, in the plural.
        interval: The least seconds between two ticks.
        resource_key: The default of the option.
        description: The default of the option.
        options: ``resource_key``, ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of its range.
    """
    defaults: SensorOptions = {"resource_key": resource_key, "description": description}
    shown = Shown(**{**defaults, **options})
    checked_target(job)
    checked_function(react, "react")

    def request(found: T) -> dg.RunRequest | None:
        asked = dg.RunRequest() if react is None else react(found)
        if asked is None:
            return None
        run_key, tags = origin(found)
        named = {_OURS + tag: value or "" for tag, value in tags.items()}
        return asked.with_replaced_attrs(run_key=asked.run_key or run_key, tags={**named, **asked.tags})

    @dg.sensor(
        name=sensor_name(name, *names),
        target=job,
        minimum_interval_seconds=interval,
        tags=LISTENS if interval == 1 else None,  # as often as Dagster can: what it reads waits
        default_status=shown.default_status,
        required_resource_keys={shown.resource_key},
        description=shown.description,
    )
    def sense(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        reading = read(getattr(context.resources, shown.resource_key), context.cursor)
        requests = [asked for found in reading.wanted if (asked := request(found)) is not None]
        quiet = None if requests else f"{reading.count} new {what} ask for no run."
        return dg.SensorResult(run_requests=requests, skip_reason=quiet, cursor=reading.cursor)

    return sense


def checked_wait(wait: Duration) -> float:
    """Return how long a tick listens, in seconds.

    Raises:
        InvalidOptionError: It is not a duration above 0, or longer than Dagster waits.
    """
    lasts = checked_duration(wait, "wait")
    if timedelta(0) < lasts <= _LONGEST_TICK:
        return lasts.total_seconds()
    raise InvalidOptionError(
        f"`wait` must be above 0 and at most {_LONGEST_TICK.total_seconds():g} s, got {wait!r}; Dagster ends longer "
        "ticks."
    )


def checked_interval(interval: Duration) -> int:
    """Return the least time between two ticks, in seconds.

    Raises:
        InvalidOptionError: It is not a duration, or below a second.
    """
    if (lasts := checked_duration(interval, "interval")) < timedelta(seconds=1):
        raise InvalidOptionError(f"`interval` must be 1 s or more, got {interval!r}; pass `interval=30`.")
    return int(lasts.total_seconds())


def checked_kinds(words: Collection[str], option: str, *, least: int = 0) -> frozenset[str]:
    """Return several words of which something must be one; none may mean any.

    Raises:
        InvalidOptionError: They are not a list of non-empty strings, or too few.
    """
    kinds = frozenset(checked_words(words, option))
    if len(kinds) < least:
        raise InvalidOptionError(f"`{option}` must have one word at least; pass `{option}=['completed']`.")
    return kinds
