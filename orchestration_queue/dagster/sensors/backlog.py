"""A sensor for a queue's backlog: requests a run when it stays too long, and the next one after it was short."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, Unpack

import dagster as dg

from orchestration_queue.dagster._compat import RunTarget
from orchestration_queue.dagster.checks import check_number, check_target, checked
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.sensors.options import SensorOptions, Shown, sensor_name
from orchestration_queue.dagster.sensors.ticks import read_object
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import Duration, as_timedelta, milliseconds, seconds
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.server.clock import now_ms

__all__ = ["Alarm", "Limits", "backlog_sensor"]

_Amount = TypeVar("_Amount", int, timedelta)
_OURS = "orchestration_queue/"


@dataclass(frozen=True, slots=True)
class Limits:
    """When a backlog is too long, and when it is short again.

    Attributes:
        depth: It is too long with at least this many waiting jobs; None ignores their number.
        age: It is too long if the oldest waiting job is at least this old; None ignores the age.
        clear_depth: It is short again below this number; default: half of ``depth``.
        clear_age: It is short again below this age; default: half of ``age``.

    Raises:
        InvalidOptionError: Neither is given, one is not above 0, or a clear value exceeds its limit.
    """

    depth: int | None = None
    age: Duration | None = None
    clear_depth: int | None = None
    clear_age: Duration | None = None

    def __post_init__(self) -> None:
        for name in ("depth", "clear_depth"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name)
        for name in ("age", "clear_age"):
            if getattr(self, name) is not None:
                check_duration(getattr(self, name), name)
        if self.depth is None and self.age is None:
            raise InvalidOptionError("`Limits` requires a depth, an age, or both; pass one.")
        if not (
            _fit(self.clear_depth, self.depth, 0)
            and _fit(as_timedelta(self.clear_age), as_timedelta(self.age), timedelta(0))
        ):
            raise InvalidOptionError(
                "`depth` and `age` must be > 0, and `clear_depth` and `clear_age` > 0 and at most as large, got "
                f"{self}."
            )

    def is_too_long(self, waiting: int, oldest: Duration) -> bool:
        """Return whether a limit is reached."""
        is_deep = self.depth is not None and waiting >= self.depth
        return is_deep or (self.age is not None and seconds(oldest) >= seconds(self.age))

    def is_short(self, waiting: int, oldest: Duration) -> bool:
        """Return whether the number and the age are below their clear values."""
        by_depth = self.depth is None or waiting < (self.clear_depth or max(1, self.depth // 2))
        return by_depth and (self.age is None or seconds(oldest) < seconds(self.clear_age or seconds(self.age) / 2))


def _fit(clear: _Amount | None, limit: _Amount | None, nothing: _Amount) -> bool:
    if limit is None:
        return clear is None
    return limit > nothing and (clear is None or nothing < clear <= limit)


@dataclass(frozen=True, slots=True)
class Alarm:
    """The state of the alarm.

    Attributes:
        since_ms: Since when the backlog has been too long without a break, epoch ms; 0 if it is not.
        is_raised: Whether a run was requested and the backlog has not been short since.
    """

    since_ms: int = 0
    is_raised: bool = False

    @classmethod
    def load(cls, cursor: str | None) -> Alarm:
        """Read the alarm from a cursor."""
        stored = read_object(cursor) if cursor else {}
        since_ms = stored.get("since_ms")
        return cls(since_ms if isinstance(since_ms, int) else 0, stored.get("is_raised") is True)

    def dump(self) -> str:
        """Dump the alarm as a cursor."""
        return json.dumps({"since_ms": self.since_ms, "is_raised": self.is_raised})

    def update(self, at_ms: int, hold: timedelta, *, is_too_long: bool, is_short: bool) -> Alarm:
        """Return the alarm after one reading of the backlog."""
        if self.is_raised:
            return Alarm() if is_short else self
        if not is_too_long:
            return Alarm()
        since_ms = self.since_ms or at_ms
        return Alarm(since_ms, at_ms - since_ms >= milliseconds(hold))


def backlog_sensor(
    queue: str,
    *,
    job: RunTarget,
    limits: Limits,
    hold: Duration = timedelta(0),
    name: str | None = None,
    interval: Duration = timedelta(seconds=30),
    **options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests one run when a queue's backlog has been too long for some time.

    It requests the next run only after the backlog was short again, so a backlog that fluctuates around its limit is
    reported once. Two exchanges per tick. The run has the tags ``orchestration_queue/waiting`` and
    ``orchestration_queue/oldest_seconds``.

    Args:
        queue: The queue.
        job: The target of its runs: a job (one that starts workers, for example), or an asset selection.
        limits: When the backlog is too long, and when it is short again.
        hold: How long it must be too long in every tick before a run is requested.
        name: The sensor's name; default: derived from the queue's.
        interval: Minimum time between two ticks.
        options: ``resource_key``, ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range.
        InvalidNameError: The queue's name is invalid.
    """
    shown = Shown(**options)
    check_target(job)
    checked(limits, Limits, "limits", optional=False)
    hold, interval = check_duration(hold, "hold"), check_duration(interval, "interval")
    QueueKeys(queue)
    if hold < timedelta(0) or interval < timedelta(seconds=1):
        raise InvalidOptionError(f"`hold` must be >= 0 and `interval` >= 1 s, got {hold} and {interval}.")

    @dg.sensor(
        name=sensor_name(name, "backlog_of", queue),
        target=job,
        minimum_interval_seconds=round(interval.total_seconds()),
        default_status=shown.default_status,
        required_resource_keys={shown.resource_key},
        description=shown.description or f"Requests a run when the backlog of queue {queue!r} is too long.",
    )
    def backlog(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resource: QueueResource = getattr(context.resources, shown.resource_key)
        client, at_ms = resource.queue(queue), now_ms()
        waiting, since = client.counts().waiting, client.oldest_ready()
        oldest = timedelta(milliseconds=max(0, at_ms - round(since.timestamp() * 1000)) if since else 0)
        before = Alarm.load(context.cursor)
        alarm = before.update(
            at_ms, hold, is_too_long=limits.is_too_long(waiting, oldest), is_short=limits.is_short(waiting, oldest)
        )
        if not alarm.is_raised or before.is_raised:
            quiet = f"{waiting} jobs wait in queue {queue}, the oldest for {oldest.total_seconds():.0f} s."
            return dg.SensorResult(skip_reason=quiet, cursor=alarm.dump())
        tags = {
            _OURS + "source_queue": queue,
            _OURS + "waiting": str(waiting),
            _OURS + "oldest_seconds": f"{oldest.total_seconds():.0f}",
        }
        request = dg.RunRequest(run_key=f"{queue}:{alarm.since_ms}", tags=tags)
        return dg.SensorResult(run_requests=[request], cursor=alarm.dump())

    return backlog
