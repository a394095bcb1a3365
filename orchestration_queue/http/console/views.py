"""Templates and their filters. Escaping is always on, so that job data is never markup."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined

from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.shapes import scheduler_shape
from orchestration_queue.server.clock import now
from orchestration_queue.wires import Wire

__all__ = ["Views"]

_KINDS = {"css": b"text/css; charset=utf-8", "js": b"text/javascript; charset=utf-8", "svg": b"image/svg+xml"}
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_LONGEST_JSON = 20_000
_NOTHING = "\u2013"


class Views:
    """The console's templates.

    Args:
        dagster: URL of Dagster's web server; None for no links.
        traces: URL of a trace, with ``{trace_id}`` for its id; None for no links.

    Attributes:
        csrf: The CSRF token for forms of the current request.
        request: The current request.
        can_act: The scopes of the current user.
    """

    def __init__(self, dagster: str | None = None, traces: str | None = None) -> None:
        self._dagster, self._traces = dagster and dagster.rstrip("/"), traces
        self.csrf: ContextVar[str] = ContextVar("csrf", default="")
        self.request: ContextVar[Request | None] = ContextVar("request", default=None)
        self.can_act: ContextVar[frozenset[str]] = ContextVar("can_act", default=frozenset())
        self._home = files("orchestration_queue.http.console")
        self._environment = Environment(
            loader=FunctionLoader(self._template),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "age": age,
            "clock": clock,
            "compact": compact,
            "duration": duration,
            "number": number,
            "part": part,
            "pretty": pretty,
            "schedule": schedule_text,
            "there": there,
        }
        self._environment.globals |= {
            "csrf": self.csrf.get,
            "can": lambda scope: scope in self.can_act.get(),
            "path": self._path,
            "query": query,
            "spark": spark,
            "spark_application": spark_application,
            "wires": [],
            "zip": lambda *values: list(zip(*values, strict=True)),
            "link": self._link,
        }

    def show_wires(self, wires: Sequence[Wire]) -> None:
        """Set the wires whose pages the navigation shows."""
        shown = [(f"/ui/{wire.name}", wire.title, wire.load("console").KEY) for wire in wires]
        self._environment.globals["wires"] = shown

    def _link(self, header: str, value: str) -> str | None:
        """Return the URL of the run or trace that a job's header names, if links are configured."""
        if self._dagster and header == "dagster.run_id":
            return f"{self._dagster}/runs/{part(value)}"
        if self._traces and header == "traceparent" and (found := _TRACEPARENT.fullmatch(value)):
            return self._traces.replace("{trace_id}", found[1])
        return None

    def _template(self, name: str) -> str:
        wire, _, own = name.rpartition("/")
        home = files(f"orchestration_queue.wires.{wire}") if wire else self._home
        return (home / "templates" / own).read_text(encoding="utf-8")

    def _path(self) -> str:
        request = self.request.get()
        return "" if request is None else request.path

    def page(self, template: str, status: int = 200, /, **values: Any) -> Raw:
        """Render a page."""
        text = self._environment.get_template(template).render(**values)
        return Raw(text.encode("utf-8", "replace"), status, _HEADERS)

    def macro(self, template: str, name: str) -> Callable[..., str]:
        """Return a template's macro, which renders a part of a page."""
        found: Callable[..., str] = getattr(self._environment.get_template(template).module, name)
        return found

    def error(self, status: int, text: str) -> Raw:
        """Render an error page."""
        return self.page("error.html", status, title="Not possible", text=text)

    def redirect(self, where: str) -> Raw:
        """Send the browser to another page."""
        return Raw(b"", 303, (*_HEADERS, (b"location", where.encode())))

    def static(self, name: str) -> tuple[bytes, bytes] | None:
        """Return a file and its media type; None for an unknown one."""
        kind = _KINDS.get(name.rpartition(".")[2])
        if kind is None or "/" in name or not (path := self._home / "static" / name).is_file():
            return None
        return path.read_bytes(), kind


def age(at: datetime | None) -> str:
    """Format the time since, or until, a moment."""
    if at is None:
        return _NOTHING
    seconds = (now() - at).total_seconds()
    text = duration(abs(seconds))
    return f"in {text}" if seconds < -1 else f"{text} ago" if seconds >= 1 else "now"


def duration(seconds: float | timedelta | None) -> str:
    """Format a duration in at most two units."""
    if seconds is None:
        return _NOTHING
    left = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if left < 1:
        return f"{left * 1000:.0f} ms"
    if left < 60:
        return f"{left:.1f} s" if left < 10 else f"{left:.0f} s"
    for unit, length, smaller, short in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if left >= length:
            whole, rest = divmod(int(left), length)
            return f"{whole} {unit}" + (f" {rest // short} {smaller}" if rest // short else "")
    return f"{left:.0f} s"


def clock(at: datetime | None) -> str:
    """Format a time in UTC; the browser adds its local time."""
    return _NOTHING if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def there(at: datetime) -> str:
    """Format a time in its own zone, with the day of the week and, except for UTC, the offset."""
    offset = "" if at.utcoffset() == timedelta(0) else f" {at:%z}"
    return f"{at:%a %Y-%m-%d %H:%M:%S}{offset}"


def number(value: float) -> str:
    """Format a number, abbreviated when it is large."""
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (100_000, "k")):
        if value >= limit:
            base = 1000 if unit == "k" else limit
            return f"{value / base:.1f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{value:,.0f}".replace(",", "\u202f")


def part(text: str) -> str:
    """Return text as one part of a path, or one value of a query."""
    return quote(text, safe="")


def compact(value: object) -> str:
    """Format a value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def pretty(value: object) -> str:
    """Format a value as indented JSON, truncated when it is very long."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return (
        text
        if len(text) <= _LONGEST_JSON
        else f"{text[:_LONGEST_JSON]}\n… {len(text) - _LONGEST_JSON:,} more characters"
    )


def schedule_text(entry: Any) -> str:
    """Return when a scheduler runs, in words."""
    shape = scheduler_shape(entry)
    if pattern := shape.get("pattern"):
        return f"{pattern} {shape.get('tz', 'UTC')}"
    if every := shape.get("every"):
        return f"every {duration(every / 1000)}"
    return f"{duration(shape.get('repeatAfterComplete', 0) / 1000)} after each end"


def spark(values: list[int], height: int = 22, step: int = 3, failed: list[int] | None = None) -> dict[str, Any]:
    """Return the paths of a small bar chart; failures are stacked on the other bars."""
    above = failed or [0] * len(values)
    most = max(map(sum, zip(values, above, strict=True)), default=0) or 1
    low = [max(1, round(value / most * (height - 1))) if value else 0 for value in values]
    high = [max(1, round(value / most * (height - 1))) if value else 0 for value in above]
    wide = max(1, step - 1)
    bars = "".join(f"M{at * step} {height - size}h{wide}v{size}h-{wide}z" for at, size in enumerate(low) if size)
    tops = "".join(f"M{at * step} {height - low[at] - n}h{wide}v{n}h-{wide}z" for at, n in enumerate(high) if n)
    return {"bars": bars, "failed": tops, "width": max(1, len(values) * step), "height": height}


def spark_application(progress: object) -> tuple[str, str | None] | None:
    """Return the id and, if it is known, the page of the Spark application that a job's progress names."""
    if not isinstance(progress, dict) or not isinstance(application := progress.get("application"), str):
        return None
    page = progress.get("ui")
    return application, page if isinstance(page, str) and page.startswith(("http://", "https://")) else None


def query(**values: object) -> str:
    """Return a query string of the values that are not empty."""
    return urlencode({name: value for name, value in values.items() if value not in (None, "")})
