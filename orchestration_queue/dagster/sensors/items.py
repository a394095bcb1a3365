"""Base of the sensors for queues of other systems: checks of their options, and the tick that requests runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar

import dagster as dg

from orchestration_queue.dagster._compat import LISTENS, RunTarget
from orchestration_queue.dagster.checks import check_function, check_target, check_words
from orchestration_queue.dagster.sensors.options import SensorOptions, Shown, sensor_name
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import Duration
from orchestration_queue.options.durations import check_duration

__all__ = [
    "EventReading",
    "ItemReaction",
    "Origin",
    "check_interval",
    "check_kinds",
    "check_wait",
    "item_sensor",
]

T = TypeVar("T")

_OURS = "orchestration_queue/"
_LONGEST_TICK = timedelta(seconds=50)
"""Dagster gives up on a sensor after 60 s."""


@dataclass(frozen=True, slots=True)
class EventReading(Generic[T]):
    """The items that one tick read: events, dead letters or jobs.

    Attributes:
        wanted: The items to react to, oldest first.
        cursor: The cursor of the next tick.
        count: The number of items read, including unwanted ones.
    """

    wanted: Sequence[T]
    cursor: str | None
    count: int


ItemReaction: TypeAlias = Callable[[T], dg.RunRequest | None]
"""A function that answers an item with a run request, or nothing."""
Origin: TypeAlias = Callable[[T], tuple[str | None, dict[str, str | None]]]
"""A function that returns the run key and tags of an item."""


def item_sensor(
    read: Callable[[Any, str | None], EventReading[T]],
    origin: Origin[T],
    *,
    job: RunTarget,
    name: str | None,
    names: Sequence[str],
    react: ItemReaction[T] | None,
    what: str,
    interval: int,
    resource_key: str,
    description: str,
    options: SensorOptions,
) -> dg.SensorDefinition:
    """Build a sensor that requests a run for each item.

    Args:
        read: Reads new items, given the resource and the cursor.
        origin: Returns the run key and the tags of an item; those of the reaction take precedence.
        job: The target of its runs.
        name: The sensor's name; default: derived from ``names``.
        names: The kind of sensor, and the names of queues.
        react: Returns the request for an item; default: a run.
        what: The items' name in the plural, for skip reasons.
        interval: Minimum seconds between two ticks.
        resource_key: Default of the option.
        description: Default of the option.
        options: ``resource_key``, ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range.
    """
    defaults: SensorOptions = {"resource_key": resource_key, "description": description}
    shown = Shown(**{**defaults, **options})
    check_target(job)
    check_function(react, "react")

    def build_request(item: T) -> dg.RunRequest | None:
        request = dg.RunRequest() if react is None else react(item)
        if request is None:
            return None
        run_key, tags = origin(item)
        own = {_OURS + tag: value or "" for tag, value in tags.items()}
        return request.with_replaced_attrs(run_key=request.run_key or run_key, tags={**own, **request.tags})

    @dg.sensor(
        name=sensor_name(name, *names),
        target=job,
        minimum_interval_seconds=interval,
        tags=LISTENS if interval == 1 else None,  # its ticks wait for events
        default_status=shown.default_status,
        required_resource_keys={shown.resource_key},
        description=shown.description,
    )
    def sense(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        reading = read(getattr(context.resources, shown.resource_key), context.cursor)
        requests = [request for item in reading.wanted if (request := build_request(item)) is not None]
        quiet = None if requests else f"{reading.count} new {what} requested no run."
        return dg.SensorResult(run_requests=requests, skip_reason=quiet, cursor=reading.cursor)

    return sense


def check_wait(wait: Duration) -> float:
    """Return how long a tick listens, in seconds.

    Raises:
        InvalidOptionError: The value is not a duration above 0 and up to 50 s.
    """
    duration = check_duration(wait, "wait")
    if timedelta(0) < duration <= _LONGEST_TICK:
        return duration.total_seconds()
    raise InvalidOptionError(
        f"`wait` must be above 0 and at most {_LONGEST_TICK.total_seconds():g} s, got {wait!r}; Dagster aborts longer "
        "ticks."
    )


def check_interval(interval: Duration) -> int:
    """Return the minimum time between two ticks, in seconds.

    Raises:
        InvalidOptionError: The value is not a duration of a second or more.
    """
    if (duration := check_duration(interval, "interval")) < timedelta(seconds=1):
        raise InvalidOptionError(f"`interval` must be >= 1 s, got {interval!r}; pass `interval=30`.")
    return int(duration.total_seconds())


def check_kinds(words: Collection[str], option: str, *, least: int = 0) -> frozenset[str]:
    """Return the words of a filter; an empty one may mean any.

    Raises:
        InvalidOptionError: The value is not a list of non-empty strings, or has too few.
    """
    kinds = frozenset(check_words(words, option))
    if len(kinds) < least:
        raise InvalidOptionError(f"`{option}` must not be empty; pass `{option}=['completed']`, for instance.")
    return kinds
