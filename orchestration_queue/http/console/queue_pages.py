"""The search of a queue's page, and the pages of a queue's settings and tags, and of pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from orchestration_queue.client import AsyncJob, AsyncQueue
from orchestration_queue.errors import UsageError
from orchestration_queue.http.console.views import Views, clock, part
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.routes import Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.jobs import bounded
from orchestration_queue.http.v1.queues import pools_to_change, read_pools
from orchestration_queue.http.v1.reading import data_filter, parse_time, plain
from orchestration_queue.protocol.record import when
from orchestration_queue.states import JobState

__all__ = ["PoolPages", "QueuePages", "Search"]

_READY = ("waiting", "prioritized", "group-waiting")


@dataclass(frozen=True, slots=True)
class Search:
    """The criteria of a search for jobs.

    Attributes:
        state: The jobs' state, one of the page's.
        text: The jobs' id, name or one of their tags.
        kind: The kind of their failure.
        data: Members of their data, as JSON text.
        since: When they ended, at the earliest; None for any time.
        until: The moment after the latest.
    """

    state: str
    text: str = ""
    kind: str = ""
    data: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def read(cls, state: str, get: Callable[[str], str | None]) -> Search:
        """Return the search that a query or a form describes.

        Raises:
            UsageError: A time is not one in ISO 8601.
        """
        text, kind, data = ((get(name) or "").strip() for name in ("q", "kind", "data"))
        since, until = (parse_time(get(name), name) for name in ("from", "to"))
        return cls(state, text, kind, data, since, until)

    @property
    def is_narrowed(self) -> bool:
        """Whether it has criteria besides the state."""
        return bool(self.text or self.kind or self.data or self.is_timed)

    @property
    def is_timed(self) -> bool:
        """Whether it has a time."""
        return bool(self.since or self.until)

    @property
    def query(self) -> str:
        """The query string of its page."""
        return urlencode({name: value for name, value in self.fields if value})

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Its parts as the fields of a form."""
        texts = [("state", self.state), ("q", self.text), ("kind", self.kind), ("data", self.data)]
        times = (("from", self.since), ("to", self.until))
        return [*texts, *((name, at.isoformat() if at else "") for name, at in times)]

    def __str__(self) -> str:
        more = [f"whose id, name or tag is {self.text!r}"] if self.text else []
        more += [f"whose failure is {self.kind!r}"] if self.kind else []
        more += [f"with {self.data} in their data"] if self.data else []
        ended = [f"{word} {clock(at)} UTC" for word, at in (("from", self.since), ("before", self.until)) if at]
        more += [f"that ended {' and '.join(ended)}"] if ended else []
        return " ".join([f"{self.state} jobs", " and ".join(more)]).strip()

    async def jobs(self, queue: AsyncQueue, limit: int) -> list[AsyncJob]:
        """Return the jobs.

        Raises:
            UsageError: The data is not a JSON object, or a kind of failure is given for completed jobs.
        """
        data, kind, state = data_filter(self.data), self.kind or None, JobState(self.state)
        found: dict[str, AsyncJob] = {}
        async with bounded("reads jobs until it has found enough; search for the id of a job"):
            if self.text and not (data or kind or self.is_timed):
                exact = await queue.find(self.text)
                found |= {exact.id: exact} if exact else {}
                with suppress(UsageError):  # it is not a valid tag
                    tagged = await queue.tags.jobs(self.text, limit=limit)
                    found |= {job.id: job for job in tagged if self._is_in_state(job)}
            named = await queue.search(self.text or None, state, data, limit, kind, self.since, self.until)
        found |= {job.id: job for job in named}
        return list(found.values())[:limit]

    def _is_in_state(self, job: AsyncJob) -> bool:
        stored: Any = job.record.fields.get("state")
        return stored in _READY if self.state == "waiting" else stored == self.state


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
    """Pages of a queue's settings and tags.

    Args:
        service: The app's service.
        views: Renders the pages.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        base, read = "/ui/queues/:name", Scope.READ
        self.routes = (
            Route("GET", f"{base}/settings", read, self._settings),
            Route("POST", f"{base}/settings", Scope.ACT, self._change_settings),
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
        """Change a queue's settings to those of the form; empty fields remove a setting."""
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
    """Return the settings of a form; text that is not a number is kept, so that the error names it."""
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
    # Floats are exact up to 15 digits.
    return int(number) if number.is_integer() and len(text) < 16 else number


_MOST_DIGITS = 6


class PoolPages:
    """The page of the slots that jobs of all queues share.

    Args:
        service: The app's service.
        views: Renders the page.
    """

    def __init__(self, service: Service, views: Views) -> None:
        self._service, self._views = service, views
        self.routes = (
            Route("GET", "/ui/pools", Scope.READ, self._show),
            Route("POST", "/ui/pools", Scope.ACT, self._set),
            Route("POST", "/ui/pools/remove", Scope.ADMIN, self._remove),
        )

    async def _show(self, request: Request) -> Raw:
        """List all pools with the jobs that hold their slots."""
        return await self._page(did=request.query.get("done", ""))

    async def _page(self, status: int = 200, **given: str) -> Raw:
        return self._views.page(
            "pools.html", status, title="Pools", pools=await read_pools(self._service), when=when,
            served=self._service.allowed, **{"did": "", "problem": "", "name": "", "slots": ""} | given,
        )  # fmt: skip

    async def _set(self, request: Request) -> Raw:
        """Define a pool, or change its number of slots."""
        name, slots = (request.form.get(field, [""])[0].strip() for field in ("pool", "slots"))
        request.subject = name
        try:
            if not (slots.isascii() and slots.isdecimal() and len(slots) < _MOST_DIGITS):
                raise UsageError(f"Slots must be an integer from 0 to 1,000, got {slots[:80]!r}; enter 8, for example.")
            await pools_to_change(self._service).set(name, int(slots))
        except UsageError as error:
            return await self._page(400, problem=str(error), name=name, slots=slots)
        return self._views.redirect("/ui/pools?done=set-1")

    async def _remove(self, request: Request) -> Raw:
        """Remove a pool, after a question."""
        request.subject = name = request.form.get("pool", [""])[0]
        if "confirmed" not in request.form:
            return self._views.page(
                "confirm.html", title="Confirm", act="remove-pool", question=f"Remove pool {name}?",
                note="Jobs that name it later fail until it is defined again.",
                fields=[("pool", name), ("act", "remove-pool")], back="/ui/pools",
            )  # fmt: skip
        done = await pools_to_change(self._service).remove(name)
        return self._views.redirect(f"/ui/pools?done=remove-{int(done)}")
