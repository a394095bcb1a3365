"""Pages of one queue besides its jobs: settings, statistics by day, and tags."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.http.console.views import Views, part
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.reading import plain
from orchestration_queue.http.v1.statistics import KEPT_DAYS, parse_day
from orchestration_queue.protocol.statistics import Distribution

__all__ = ["QueuePages"]

_FIELDS = (
    ("attempts", "Attempts"),
    ("backoff.type", "Backoff (fixed, exponential)"),
    ("backoff.delay", "First pause (seconds)"),
    ("backoff.jitter", "Jitter of pauses (0 to 1)"),
    ("timeout", "Timeout (seconds)"),
    ("lease", "Lease (seconds)"),
    ("remove_on_complete.count", "Keep completed (number)"),
    ("remove_on_complete.age", "Keep completed (seconds)"),
    ("remove_on_fail.count", "Keep failed (number)"),
    ("remove_on_fail.age", "Keep failed (seconds)"),
    ("dead_letter_queue", "Dead-letter queue"),
    ("concurrency", "Active jobs over all workers"),
    ("rate_limit.max", "Starts at most"),
    ("rate_limit.duration", "In each (seconds)"),
)
_TEXTS = ("backoff.type", "dead_letter_queue")
_SHOWN = 200


class QueuePages:
    """What else can be seen and set of a queue.

    Args:
        service: What it is read through.
        views: How it is shown.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        base, read = "/ui/queues/:name", Scope.READ
        self.routes = (
            Route("GET", f"{base}/settings", read, self._settings),
            Route("POST", f"{base}/settings", Scope.ACT, self._change_settings),
            Route("GET", f"{base}/statistics", read, self._statistics),
            Route("GET", f"{base}/tags", read, self._tags),
            Route("GET", f"{base}/tags/:tag", read, self._tag),
        )

    async def _settings(self, request: Request) -> Raw:
        """Show a queue's settings in a form."""
        queue = self._service.queue(request.params["name"])
        stored = plain(await queue.settings())
        return self._form(request, {name: _get(stored, name) for name, _ in _FIELDS})

    def _form(self, request: Request, values: Mapping[str, Any], status: int = 200, problem: str = "") -> Raw:
        fields = [(name, label, values.get(name)) for name, label in _FIELDS]
        name = request.params["name"]
        return self._views.page(
            "settings.html", status, title=f"Settings of {name}", name=name, fields=fields, problem=problem,
            did=request.query.get("done", ""),
        )  # fmt: skip

    async def _change_settings(self, request: Request) -> Raw:
        """Change a queue's settings to what the form says; empty fields set nothing."""
        queue = self._service.queue(request.params["name"])
        given = {name: request.form.get(name, [""])[0].strip() for name, _ in _FIELDS}
        changes = _changes(given)
        if letters := changes["dead_letter_queue"]:
            request.allow([queue.name, letters])
        try:
            await queue.configure(**changes)
        except UsageError as error:
            return self._form(request, given, 400, str(error))
        return self._views.redirect(f"/ui/queues/{part(queue.name)}/settings?done=save-1")

    async def _statistics(self, request: Request) -> Raw:
        """Show how long a day's jobs waited and ran, by task, and how many ended on each of 30 days."""
        queue = self._service.queue(request.params["name"])
        today = await queue.statistics()
        days = [today.day - timedelta(days=back) for back in range(KEPT_DAYS)]
        asked = parse_day(request.query.get("day") or None) or today.day
        shown, *found = await asyncio.gather(*(queue.statistics(day) for day in (asked, *days[1:])))
        totals = [(each.day, each.all) for each in (today, *found)]
        return self._views.page(
            "statistics.html", title=f"Statistics of {queue.name}", name=queue.name, shown=shown, totals=totals[::-1],
            bars=_bars,
        )  # fmt: skip

    async def _tags(self, request: Request) -> Raw:
        """List a queue's tags."""
        queue = self._service.queue(request.params["name"])
        tags = await queue.tags.list(limit=_SHOWN)
        return self._views.page(
            "tags.html", title=f"Tags of {queue.name}", name=queue.name, tags=tags, did=request.query.get("done", "")
        )

    async def _tag(self, request: Request) -> Raw:
        """List the jobs of a tag."""
        queue, tag = self._service.queue(request.params["name"]), request.params["tag"]
        jobs = await queue.tags.jobs(tag, limit=_SHOWN)
        return self._views.page(
            "tag.html", title=tag, name=queue.name, tag=tag, jobs=jobs, most=_SHOWN, did=request.query.get("done", "")
        )


def _get(stored: Mapping[str, Any], name: str) -> Any:
    group, _, member = name.partition(".")
    found = stored.get(group)
    return found.get(member) if member and isinstance(found, Mapping) else None if member else found


def _changes(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a form; text that is no number stays, for the refusal to name it."""
    changes: dict[str, Any] = {name.partition(".")[0]: None for name in given}
    for name, text in given.items():
        if not text:
            continue
        group, _, member = name.partition(".")
        value = text if name in _TEXTS else _number(text)
        if member:
            changes[group] = {**(changes[group] or {}), member: value}
        else:
            changes[group] = value
    return changes


def _number(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and len(text) < 16 else number


def _bars(spread: Distribution) -> list[int]:
    """Return the counts of the histogram, from the shortest duration to the longest."""
    if not spread.buckets:
        return []
    return [spread.buckets.get(bucket, 0) for bucket in range(min(spread.buckets), max(spread.buckets) + 1)]
