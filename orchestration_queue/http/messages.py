"""Requests and responses of handlers, and the parameters of requests, by the rules of glide-mq's proxy."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard
from urllib.parse import parse_qs, parse_qsl

if TYPE_CHECKING:
    from orchestration_queue.http.service import Service

__all__ = [
    "FINISHED",
    "JOB_STATES",
    "MISSING",
    "HttpError",
    "Json",
    "Raw",
    "Request",
    "Response",
    "Stream",
    "bounds",
    "choice",
    "count_of",
    "csv",
    "dump",
    "flag",
    "integer",
    "is_number",
    "number_field",
    "parse_body",
    "required_integer",
    "text_field",
]

MISSING: Final = object()
"""The body of a request without one."""


class HttpError(Exception):
    """A response other than success: its status, and the sentence for the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass(slots=True)
class Request:
    """One request, routed.

    Attributes:
        service: The app's service.
        method: The HTTP method; ``GET`` for ``HEAD``.
        params: The decoded parts of the path that the route names.
        query_string: The part of the URL after the question mark.
        headers: Header values by lower-case name.
        body: The parsed JSON; :data:`MISSING` without a body.
        path: The requested path.
        gone: Waits until the client disconnects.
        user: The requesting user, by the name of the token.
        raw_body: The body as bytes.
        subject: The subject of an action, for the audit log; empty for the id in the path.
        allow: Refuses queues that the token or the allow-list does not name; set on our own routes.
    """

    service: Service
    method: str
    params: Mapping[str, str]
    query_string: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = MISSING
    gone: Callable[[], Awaitable[None]] | None = None
    user: str = ""
    raw_body: bytes = b""
    path: str = ""
    subject: str = ""
    allow: Callable[[Iterable[str]], None] = field(default=lambda _: None)
    _query: dict[str, str] | None = None
    _form: dict[str, list[str]] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters; if one is repeated, its first value counts."""
        if self._query is None:
            pairs = parse_qsl(self.query_string, keep_blank_values=True)
            self._query = dict(reversed(pairs))
        return self._query

    @property
    def form(self) -> dict[str, list[str]]:
        """The fields of an HTML form."""
        if self._form is None:
            self._form = parse_qs(self.raw_body.decode("utf-8", "replace"), keep_blank_values=True)
        return self._form

    @property
    def fields(self) -> Mapping[str, Any]:
        """The body's members; none when the body is not an object."""
        return self.body if isinstance(self.body, dict) else {}


@dataclass(frozen=True, slots=True)
class Json:
    """A response whose body is JSON."""

    payload: Any
    status: int = 200
    media_type: bytes = b"application/json; charset=utf-8"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """A response of server-sent events; each part is one complete message."""

    parts: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Raw:
    """A response of any other kind: a page, a file, a redirection."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


Response: TypeAlias = Json | Raw | Stream

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dump(payload: object) -> bytes:
    """Return compact JSON. Characters that UTF-8 cannot encode are replaced."""
    return _dump(payload).encode("utf-8", "replace")


def _refuse(constant: str) -> object:
    # json.loads() takes NaN and Infinity.
    raise ValueError(f"{constant} is not JSON")


def parse_body(body: bytes, content_type: str) -> Any:
    """Parse a body as glide-mq's proxy does: JSON objects and arrays; other media types count as no body.

    Raises:
        HttpError: The charset is unknown (415), or the text is not such JSON (400).
    """
    media_type, _, rest = content_type.partition(";")
    if not body or media_type.strip().lower() != "application/json":
        return MISSING
    charset = "utf-8"
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip(" \"'").lower()
    if not charset.startswith("utf-"):
        raise HttpError(415, "Bad request")
    try:
        parsed = json.loads(body.decode(charset), parse_constant=_refuse)
    except (ValueError, LookupError, RecursionError):
        raise HttpError(400, "Bad request") from None
    if not isinstance(parsed, dict | list):
        raise HttpError(400, "Bad request")
    return parsed


JOB_STATES = ("waiting", "active", "delayed", "completed", "failed")
FINISHED = ("completed", "failed")
# JavaScript's largest safe integer.
_SAFE = 2**53 - 1
_LARGEST = int(sys.float_info.max)
"""JavaScript reads a larger number as infinity."""


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite JSON number."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _LARGEST
    return isinstance(value, float) and math.isfinite(value)


def integer(query: Mapping[str, str], name: str, least: int | None = None, *, or_last: bool = False) -> int | None:
    """Return an integer of the query; None when it is absent.

    Args:
        query: The query.
        name: The parameter.
        least: Its minimum.
        or_last: Whether to allow -1, too, for the last one.
    """
    text = query.get(name)
    return None if text is None else _whole(text, name, least, or_last=or_last)


def _whole(text: str, name: str, least: int | None, *, or_last: bool = False) -> int:
    if not re.fullmatch(r"-?[0-9]+", text):
        raise HttpError(400, f"{name} must be an integer")
    if len(text) > 17 or abs(number := int(text)) > _SAFE:
        raise HttpError(400, f"{name} must be a safe integer")
    if least is not None and number < least and not (or_last and number == -1):
        raise HttpError(400, f"{name} must be >= {least}")
    return number


def required_integer(query: Mapping[str, str], name: str, least: int) -> int:
    """Return an integer that the query must have."""
    if not query.get(name):
        raise HttpError(400, f"Missing required query param: {name}")
    return integer(query, name, least) or 0


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return a boolean of the query; False when it is absent."""
    text = query.get(name)
    if text in (None, "false", "0"):
        return False
    if text not in ("true", "1"):
        raise HttpError(400, f"{name} must be true or false")
    return True


def choice(query: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Return a parameter that the query must have, one of several words."""
    text = query.get(name)
    if not text:
        raise HttpError(400, f"Missing required query param: {name}")
    if text not in choices:
        raise HttpError(400, f"{name} must be one of: {', '.join(choices)}")
    return text


def csv(query: Mapping[str, str], name: str) -> list[str] | None:
    """Return a list of the query; None when it has no items."""
    return [item for part in query.get(name, "").split(",") if (item := part.strip())] or None


def bounds(query: Mapping[str, str]) -> tuple[int, int | None]:
    """Return ``start`` and ``end`` of a page as an offset and a limit; the limit is None for all."""
    start = integer(query, "start", 0) or 0
    end = integer(query, "end", 0, or_last=True)
    return start, None if end is None or end == -1 else max(0, end - start + 1)


def count_of(body: Mapping[str, Any], query: Mapping[str, str], least: int) -> int | None:
    """Return ``count`` from the body if it is a number, else from the query; None when neither has one."""
    count: object = body.get("count")
    if is_number(count):
        is_whole = isinstance(count, int) or (count == int(count) and abs(count) < 1e21)
        if not is_whole:
            raise HttpError(400, "count must be an integer")
        return _whole(str(int(count)), "count", least)
    return integer(query, "count", least)


def text_field(body: Mapping[str, Any], name: str, hint: str = "") -> str:
    """Return a non-empty string that the body must have."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise HttpError(400, f"Missing required field: {name}{hint}")
    return value


def number_field(body: Mapping[str, Any], name: str) -> float:
    """Return a number >= 0 that the body must have."""
    value: object = body.get(name)
    if not is_number(value) or value < 0:
        raise HttpError(400, f"Missing required field: {name} (non-negative number)")
    return value
