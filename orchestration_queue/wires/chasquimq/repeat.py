"""Repeatable jobs: their spec on the wire, when they run, and what to do about missed runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from orchestration_queue.errors import ScheduleError
from orchestration_queue.wires.chasquimq.cron import parse_cron, parse_zone
from orchestration_queue.wires.chasquimq.packing import Struct, pack, unpack

__all__ = [
    "ChasquiCron",
    "EveryPattern",
    "MissedFires",
    "Pattern",
    "RepeatSpec",
    "due_fires",
    "first_fire",
    "next_fire",
]

MissedFires: TypeAlias = Literal["skip", "fire_once", "fire_all"]

_SPEC = (
    "key",
    "job_name",
    "pattern",
    "payload",
    "limit",
    "start_after_ms",
    "end_before_ms",
    "fired",
    "missed_fires",
)
_REQUIRED = 7
# The original's limit of one tick.
_MOST_FIRES = 10_000
_GRACE_MS = 10_000
"""How late a due fire may be and still happen under ``skip``: a change of leaders takes up to five seconds."""


@dataclass(frozen=True, slots=True)
class EveryPattern:
    """Fire at equal intervals.

    Attributes:
        interval_ms: The interval.
    """

    interval_ms: int

    def __str__(self) -> str:
        return f"every:{self.interval_ms}"


@dataclass(frozen=True, slots=True)
class ChasquiCron:
    """Fire by a cron pattern.

    Attributes:
        expression: The pattern, in ChasquiMQ's dialect.
        tz: The time zone; None is UTC.
    """

    expression: str
    tz: str | None = None

    def __str__(self) -> str:
        return f"cron:{self.expression}:{self.tz or 'UTC'}"


Pattern: TypeAlias = EveryPattern | ChasquiCron


@dataclass(frozen=True, slots=True)
class RepeatSpec:
    """A repeatable job.

    Attributes:
        job_name: The name of each job it adds.
        pattern: When it runs.
        payload: The packed data of each job.
        key: Its key in the queue; empty for the default, name and pattern.
        limit: After how many runs it ends; None for no limit.
        start_after_ms: No run before, epoch ms.
        end_before_ms: No run after, epoch ms.
        missed_fires: What to do about runs missed while no scheduler was running.
        max_catchup: How many of them ``fire_all`` makes up for.
    """

    job_name: str
    pattern: Pattern
    payload: bytes
    key: str = ""
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    missed_fires: MissedFires = "skip"
    max_catchup: int = 1

    @property
    def resolved_key(self) -> str:
        """Its identity in the queue."""
        return self.key or f"{self.job_name}::{self.pattern}"

    def pack(self) -> bytes:
        """Pack the spec, in the oldest format that can represent it."""
        fields: list[Any] = [self.resolved_key, self.job_name, _pack_pattern(self.pattern), pack(self.payload)]
        fields += [self.limit, self.start_after_ms, self.end_before_ms, 0]
        if self.missed_fires == "fire_once":
            fields.append("FireOnce")
        elif self.missed_fires == "fire_all":
            fields.append({"FireAll": [self.max_catchup]})
        return pack(fields)

    @classmethod
    def unpack(cls, packed: bytes) -> RepeatSpec:
        """Read a spec in any format.

        Raises:
            PayloadError: It is malformed.
        """
        fields = Struct(unpack(packed, "The spec"), "The spec of the repeatable job", _SPEC, _REQUIRED)
        payload = unpack(fields.binary("payload"), "The spec's payload")
        if not isinstance(payload, bytes):
            raise fields.error("payload", "not bytes inside bytes")
        missed, catchup = _read_missed(fields)
        return cls(
            fields.text("job_name"),
            _read_pattern(fields),
            payload,
            fields.text("key"),
            fields.optional_integer("limit"),
            fields.optional_integer("start_after_ms"),
            fields.optional_integer("end_before_ms"),
            missed,
            catchup,
        )


def _pack_pattern(pattern: Pattern) -> dict[str, list[Any]]:
    if isinstance(pattern, EveryPattern):
        return {"Every": [pattern.interval_ms]}
    return {"Cron": [pattern.expression, pattern.tz]}


def _read_pattern(fields: Struct) -> Pattern:
    match fields.get("pattern"):
        case {"Every": content, **rest} if not rest:
            every = Struct(content, "The spec's pattern", ("interval_ms",), 1)
            if not (interval := every.integer("interval_ms")):
                raise every.error("interval_ms", "0")
            return EveryPattern(interval)
        case {"Cron": content, **rest} if not rest:
            cron = Struct(content, "The spec's pattern", ("expression", "tz"), 2)
            return ChasquiCron(cron.text("expression"), None if cron.get("tz") is None else cron.text("tz"))
    raise fields.error("pattern", "neither Every nor Cron")


def _read_missed(fields: Struct) -> tuple[MissedFires, int]:
    match fields.get("missed_fires") if fields.has("missed_fires") else "Skip":
        case "Skip":
            return "skip", 1
        case "FireOnce":
            return "fire_once", 1
        case {"FireAll": content, **rest} if not rest:
            return "fire_all", Struct(content, "The spec's policy", ("max_catchup",), 1).integer("max_catchup")
    raise fields.error("missed_fires", "not a known policy")


def next_fire(spec: RepeatSpec, after_ms: int) -> int | None:
    """Return the first run after a time, in epoch ms; None if there are no more.

    Raises:
        ScheduleError: The pattern is invalid.
    """
    after_ms = max(after_ms, spec.start_after_ms or 0)
    if isinstance(spec.pattern, EveryPattern):
        return after_ms + spec.pattern.interval_ms
    return parse_cron(spec.pattern.expression).next_after(after_ms, parse_zone(spec.pattern.tz))


def first_fire(spec: RepeatSpec, now_ms: int) -> int:
    """Return the first run of a new spec.

    Raises:
        ScheduleError: It never runs.
    """
    first = next_fire(spec, now_ms)
    if first is None or (spec.end_before_ms is not None and first > spec.end_before_ms):
        raise ScheduleError(f"The schedule {spec.resolved_key!r} never fires; check its pattern, start and end.")
    return first


def due_fires(spec: RepeatSpec, due_ms: int, now_ms: int) -> tuple[list[int], int | None]:
    """Return the runs to make up for, and when the next one is due.

    Under ``skip``, missed runs are dropped, but not the run that is due now, which the original drops too.

    Args:
        spec: The repeatable job.
        due_ms: Its earliest run that has not happened.
        now_ms: The time, not before `due_ms`.

    Raises:
        ScheduleError: The pattern is invalid.
    """
    following = next_fire(spec, due_ms)
    if following is None or following >= now_ms:
        return [due_ms], following
    if spec.missed_fires == "fire_all":
        fires = _fires(spec, due_ms, now_ms, min(spec.max_catchup, _MOST_FIRES))
        return fires, _first_beyond(spec, due_ms, now_ms)
    beyond = _first_beyond(spec, due_ms, now_ms)
    if spec.missed_fires == "fire_once" or _is_recent(spec, due_ms, now_ms):
        return [due_ms], beyond
    return [], beyond


def _fires(spec: RepeatSpec, due_ms: int, now_ms: int, most: int) -> list[int]:
    fires: list[int] = []
    fire: int | None = due_ms
    while fire is not None and fire <= now_ms and len(fires) < most:
        fires.append(fire)
        fire = next_fire(spec, fire)
    return fires


def _first_beyond(spec: RepeatSpec, due_ms: int, now_ms: int) -> int | None:
    """Return the first fire after `now_ms` on the cadence that `due_ms` belongs to."""
    step = spec.pattern.interval_ms if isinstance(spec.pattern, EveryPattern) else 1000
    return next_fire(spec, now_ms - (now_ms - due_ms) % step)


def _is_recent(spec: RepeatSpec, due_ms: int, now_ms: int) -> bool:
    """Return whether a fire was due within the grace."""
    if now_ms - due_ms <= _GRACE_MS:
        return True
    latest = _first_beyond(spec, due_ms, now_ms - _GRACE_MS)
    return latest is not None and latest <= now_ms
