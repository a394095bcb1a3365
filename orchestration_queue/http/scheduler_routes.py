"""Schedulers: routes R26-R29 of glide-mq's proxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestration_queue.errors import ScheduleError
from orchestration_queue.http.messages import HttpError, Json, Request, is_number
from orchestration_queue.http.shapes import scheduler_shape
from orchestration_queue.options import JobOptions, placement_from_wire
from orchestration_queue.schedules import Cron, Every, JobTemplate, RepeatAfterComplete, Schedule

__all__ = ["get_scheduler", "list_schedulers", "put_scheduler", "remove_scheduler"]

_NOT_FOUND = HttpError(404, "Scheduler not found")
_INTERNAL = HttpError(500, "Internal server error")
"""glide-mq hides these mistakes of the caller; its clients expect that status."""
_SAFE = 2**53 - 1
_CRON_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


class _SentTemplate(JobTemplate):
    """A template that is stored as the client sent it."""

    sent: Mapping[str, Any]

    def members(self) -> dict[str, object]:
        """Return the members to store."""
        return dict(self.sent)


async def list_schedulers(request: Request) -> Json:
    """List the queue's schedulers."""
    entries = await request.service.queue(request.params["name"]).schedulers.list()
    return Json({"schedulers": [{"name": name, "entry": scheduler_shape(entry)} for name, entry in entries.items()]})


async def get_scheduler(request: Request) -> Json:
    """Return one scheduler."""
    entry = await request.service.queue(request.params["name"]).schedulers.find(request.params["id"])
    if entry is None:
        raise _NOT_FOUND
    return Json({"entry": scheduler_shape(entry), "name": request.params["id"]})


async def remove_scheduler(request: Request) -> Json:
    """Remove a scheduler; jobs that it added stay."""
    if not await request.service.queue(request.params["name"]).schedulers.remove(request.params["id"]):
        raise _NOT_FOUND
    return Json({"removed": True})


async def put_scheduler(request: Request) -> Json:
    """Set a scheduler. If its schedule is unchanged, its count continues."""
    given = request.fields.get("schedule")
    if not isinstance(given, dict):
        raise HttpError(400, "Missing required field: schedule")
    queue = request.service.queue(request.params["name"])
    schedule, template = _schedule(given), _template(request.fields.get("template"))
    try:
        await queue.schedulers.upsert(request.params["id"], schedule, template)
    except ScheduleError:
        raise _INTERNAL from None  # no run is left
    return Json({"upserted": True})


def _template(given: object) -> JobTemplate | None:
    if not isinstance(given, dict):
        return None
    options = given.get("opts")
    options = options if isinstance(options, dict) else {}
    for key in ("parent", "parents"):
        if key in options:
            raise HttpError(400, f"template.opts.{key} is not allowed")
    if options.get("lifo") and isinstance(options.get("ordering"), dict):
        raise _INTERNAL
    name = given.get("name")
    placed = placement_from_wire(options)
    kept = JobOptions(priority=placed.priority, attempts=placed.attempts, ttl=placed.ttl, lifo=placed.lifo)
    named = name if isinstance(name, str) and name else None
    return _SentTemplate(name=named, data=given.get("data"), options=kept, sent=given)


def _schedule(given: Mapping[str, Any]) -> Schedule:
    kinds = [name for name in ("pattern", "every", "repeatAfterComplete") if given.get(name) is not None]
    for name in ("every", "repeatAfterComplete"):
        if name in kinds and not _is_count(given[name]):
            raise HttpError(400, f"{name} must be a positive safe integer")
    if len(kinds) != 1:
        raise _INTERNAL
    start, end = _date(given, "startDate"), _date(given, "endDate")
    if start and end and start > end:
        raise HttpError(400, "startDate must be less than or equal to endDate")
    limit = given.get("limit")
    if limit is not None and not _is_count(limit):
        raise HttpError(400, "limit must be a positive integer")
    bounds: dict[str, Any] = {"start": start, "end": end, "limit": None if limit is None else int(limit)}
    try:
        if kinds == ["pattern"]:
            return _cron(given, bounds)
        interval = timedelta(milliseconds=given[kinds[0]])
        return Every(interval, **bounds) if kinds == ["every"] else RepeatAfterComplete(interval, **bounds)
    except (ScheduleError, OverflowError) as error:
        raise HttpError(400, str(error)) from None


def _is_count(value: object) -> bool:
    return is_number(value) and 0 < value <= _SAFE and value == int(value)


def _date(given: Mapping[str, Any], name: str) -> datetime | None:
    value = given.get(name)
    if value is None:
        return None
    try:
        if is_number(value):
            return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise HttpError(400, f"{name} must be a valid Date or timestamp")


def _cron(given: Mapping[str, Any], bounds: dict[str, Any]) -> Cron:
    pattern, zone = given["pattern"], given.get("tz")
    if not isinstance(pattern, str):
        raise _INTERNAL
    try:
        # Both days must match, as every other client of the wire reads a pattern that restricts both.
        return Cron(pattern, tz=zone, day_or=False, **bounds)
    except ScheduleError as error:
        if problem := _cron_problem(pattern):
            raise HttpError(400, problem) from None
        if "zone" in str(error):
            raise HttpError(400, f"Invalid timezone: {zone}") from None
        raise HttpError(400, str(error)) from None


def _cron_problem(pattern: str) -> str | None:
    """Return the message of glide-mq's proxy for an invalid pattern."""
    fields = pattern.split()
    if len(fields) != len(_CRON_BOUNDS):
        return f"Invalid cron pattern: expected 5 fields, got {len(fields)}"
    for field, (least, most) in zip(fields, _CRON_BOUNDS, strict=True):
        for token in field.split(","):
            whole, slash, step = token.partition("/")
            if slash and not (step.isdecimal() and int(step) > 0):
                return f"Invalid cron step: {step}"
            if whole == "*":
                continue
            found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", whole)
            if not found:
                return f"Invalid cron token: {token}"
            first, last = int(found[1]), int(found[2] or found[1])
            if not (least <= first and last <= most):
                shown = f"range out of bounds: {first}-{last}" if found[2] else f"value out of bounds: {first}"
                return f"Cron {shown}"
    return None
