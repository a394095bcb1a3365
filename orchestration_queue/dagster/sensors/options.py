"""Options of all sensors, and of those that listen to events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, TypedDict

import dagster as dg
from pydantic import ConfigDict, Field, field_validator, model_validator

from orchestration_queue.dagster.checks import check_items, check_text
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import Options
from orchestration_queue.options.durations import Duration, DurationField
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["ListenOptions", "Listening", "SensorOptions", "Shown", "check_queues", "default_name", "sensor_name"]

_LONGEST_TICK = timedelta(seconds=50)
"""Dagster aborts a tick after 60 s."""
_LONGEST_LINGER = timedelta(seconds=5)
"""Dagster starts the next tick within this time."""
_MOST_EVENTS = 10_000

OnGap = Literal["warn", "observe", "fail"]
Start = Literal["now", "oldest"]


class SensorOptions(TypedDict, total=False):
    """Keyword arguments of all sensors; see :class:`Shown`."""

    resource_key: str
    default_status: dg.DefaultSensorStatus
    description: str | None


class ListenOptions(SensorOptions, total=False):
    """Keyword arguments of sensors that listen; see :class:`Listening`."""

    start: Start
    wait: Duration
    linger: Duration
    limit: int
    tick_limit: Duration
    on_gap: OnGap
    gap_asset: str | None


class Shown(Options):
    """Options of a sensor in the definitions."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    resource_key: str = Field(default="queue", min_length=1)
    """The :class:`QueueResource` among the definitions' resources."""
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED
    """Whether the sensor runs without being switched on."""
    description: str | None = None
    """Text for the UI."""


class Listening(Shown):
    """Options of a sensor that listens."""

    start: Start = "now"
    """Where to start in a queue that is not in the cursor: ``now``, or at the ``oldest`` event that is kept."""
    wait: DurationField = timedelta(seconds=20)
    """How long one tick listens, at most 50 s."""
    linger: DurationField = timedelta(milliseconds=100)
    """How long a tick continues to listen after its first event, at most 5 s.

    Closely following events are then handled in the same tick, not in the next, which Dagster starts up to 5 s later.
    """
    limit: int = 500
    """How many events of a queue one tick reads at once, at most 10,000."""
    tick_limit: DurationField = _LONGEST_TICK
    """The time after which a tick leaves further events to the next one, at most 50 s; Dagster aborts it after 60 s."""
    on_gap: OnGap = "warn"
    """What to do about events that the server dropped before they were read: ``warn`` in the tick's log, ``observe``
    them as an observation of ``gap_asset``, or let the tick ``fail``, and every further one, until the cursor
    is set manually."""
    gap_asset: str | None = None
    """The asset to observe with ``on_gap="observe"``, as ``part/part``."""

    @field_validator("wait", "tick_limit")
    @classmethod
    def _is_shorter_than_a_tick(cls, value: timedelta, info: object) -> timedelta:
        if timedelta(0) < value <= _LONGEST_TICK:
            return value
        raise InvalidOptionError(
            f"`{getattr(info, 'field_name', 'wait')}` must be above 0 and at most "
            f"{_LONGEST_TICK.total_seconds():g} s, got {value.total_seconds():g} s; Dagster aborts a tick after 60 s."
        )

    @field_validator("linger")
    @classmethod
    def _is_shorter_than_a_pause(cls, value: timedelta) -> timedelta:
        if timedelta(0) <= value <= _LONGEST_LINGER:
            return value
        raise InvalidOptionError(
            f"`linger` must be from 0 to {_LONGEST_LINGER.total_seconds():g} s, after which the next tick starts, "
            f"got {value.total_seconds():g} s."
        )

    @field_validator("limit")
    @classmethod
    def _is_a_page(cls, value: int) -> int:
        if 0 < value <= _MOST_EVENTS:
            return value
        raise InvalidOptionError(f"`limit` must be from 1 to {_MOST_EVENTS} events, got {value}.")

    @model_validator(mode="after")
    def _check_gap_asset(self) -> Listening:
        if (self.on_gap == "observe") == bool(self.gap_asset):
            return self
        raise InvalidOptionError(
            "`on_gap='observe'` and `gap_asset` require each other; pass the asset whose observations report dropped "
            "events, or `on_gap='warn'`."
        )


def check_queues(queue: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the queues to listen to.

    Raises:
        InvalidOptionError: The list is empty, or a name is repeated.
        InvalidNameError: A name is invalid.
    """
    names = (queue,) if isinstance(queue, str) else check_items(queue, str, "queue")
    for name in names:
        QueueKeys(name)
    if not names or len(set(names)) < len(names):
        raise InvalidOptionError(
            f"`queue` must be one queue or several different ones, got {list(names)}; pass each queue once."
        )
    return names


def default_name(kind: str, *names: str) -> str:
    """Build a valid Dagster name from other names."""
    return "_".join([kind, *("".join(c if c.isascii() and c.isalnum() else "_" for c in name) for name in names)])


def sensor_name(name: str | None, kind: str, *names: str) -> str:
    """Return the given name of a sensor, or one derived from other names.

    Raises:
        InvalidOptionError: The name is empty or not a string.
    """
    return default_name(kind, *names) if name is None else check_text(name, "name")
