"""Parameters of own routes, and values as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from orchestration_queue.client import AsyncJob
from orchestration_queue.errors import UsageError
from orchestration_queue.http.messages import MISSING, Request
from orchestration_queue.options import Options
from orchestration_queue.options.durations import check_duration

__all__ = [
    "data_filter",
    "destination",
    "job_shape",
    "members",
    "page_of",
    "parse_time",
    "plain",
    "seconds_of",
    "text",
    "time_of",
    "whole",
    "wire_shape",
]

_MOST_DIGITS = 9
_JSON = frozenset({"data", "result", "progress", "options"})
"""Of a job, what came as JSON."""


def whole(request: Request, name: str, default: int, *, least: int = 1, most: int) -> int:
    """Return an integer of the query."""
    given = request.query.get(name)
    if given is None:
        return default
    if given.isascii() and given.isdecimal() and len(given) <= _MOST_DIGITS and least <= int(given) <= most:
        return int(given)
    raise UsageError(f"`{name}` must be a whole number from {least} to {most}, got {given!r}; pass `{name}={default}`.")


def page_of(request: Request) -> tuple[int, int]:
    """Return ``limit`` and ``offset`` of the query."""
    return whole(request, "limit", 100, most=1000), whole(request, "offset", 0, least=0, most=1_000_000)


def seconds_of(body: Mapping[str, Any], name: str, default: float, *, most: float) -> float:
    """Return a duration of the body, in seconds."""
    seconds = check_duration(body.get(name, default), name).total_seconds()
    if seconds > most:
        raise UsageError(f"`{name}` must be at most {most} seconds, got {seconds:g}; pass `{name}={default}`.")
    return seconds


def text(request: Request, name: str) -> str | None:
    """Return a string of the query; None when it is absent or empty."""
    return request.query.get(name) or None


def time_of(request: Request, name: str) -> datetime | None:
    """Return a time of the query, in UTC if it names no zone; None when it is absent or empty."""
    return parse_time(request.query.get(name), name)


def parse_time(given: str | None, name: str) -> datetime | None:
    """Return a time in ISO 8601, in UTC if it names no zone; None when it is empty.

    Raises:
        UsageError: It is no time.
    """
    if not given:
        return None
    try:
        found = datetime.fromisoformat(given)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"`{name}` must be a time such as 2026-01-31T06:00, in UTC, got {given!r:.80}.") from None


def data_filter(given: str | None) -> dict[str, Any] | None:
    """Return the fields that jobs' data must have, from JSON such as ``{"user": 7}``; None when it is empty."""
    if not given:
        return None
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f'`data` must be a JSON object such as {{"user": 7}}, got {given[:80]!r}.')
    return found


def members(request: Request, *known: str) -> Mapping[str, Any]:
    """Return the body, a JSON object of known members; empty without a body."""
    body = {} if request.body is MISSING else request.body
    if not isinstance(body, dict):
        raise UsageError(f"The body must be a JSON object with {_join(known)}, got a list.")
    for name in body:
        if name not in known:
            raise UsageError(f"The body has an unknown member {name[:80]!r}; pass {_join(known)}.")
    return body


def destination(request: Request, *more: str) -> tuple[str, Any]:
    """Return the queue that the body names, if the caller may use it, and the delay until jobs are due."""
    body = members(request, "to", "delay", *more)
    to = body.get("to")
    if not isinstance(to, str) or not to:
        raise UsageError(
            'The body must have `to`, the name of another queue; pass {"to": "imports-slow"}, for example.'
        )
    request.allow([request.params["name"], to])
    return to, body.get("delay")


def _join(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names) if names else "no members"


def plain(value: Any) -> Any:
    """Convert a value to JSON: times in ISO 8601, durations in seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Options):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, date):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else value


def wire_shape(value: Any, *left_out: str) -> Any:
    """Convert a value of another wire to JSON; what JSON cannot represent becomes text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: wire_shape(getattr(value, each.name)) for each in fields(value) if each.name not in left_out}
    if isinstance(value, Mapping):
        return {str(name): wire_shape(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [wire_shape(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    value = plain(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def job_shape(job: AsyncJob, *, in_full: bool = False) -> dict[str, Any]:
    """Return a job as JSON, with the names of its attributes."""
    described = job.record.describe(in_full=in_full)
    shown = {name: value if name in _JSON else plain(value) for name, value in described.items()}
    return {"id": job.id, "queue": job.queue} | shown
