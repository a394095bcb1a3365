"""Requests and responses: what handlers read and what they return, apart from any server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qs, parse_qsl

if TYPE_CHECKING:
    from orchestration_queue.http.service import Service

__all__ = ["MISSING", "HttpError", "Json", "Raw", "Request", "Response", "Stream", "dump", "parse_body"]

MISSING: Final = object()
"""The body of a request without one."""


class HttpError(Exception):
    """An answer other than success: its status, and the sentence that the client gets."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass(slots=True)
class Request:
    """One request, routed.

    Attributes:
        service: What answers it.
        method: The HTTP method; ``GET`` for ``HEAD``.
        params: The decoded parts of the path that the route names.
        query_string: What follows the question mark.
        headers: Header values by lower-case name.
        body: The parsed JSON; :data:`MISSING` without a body.
        path: The path as it was asked for.
        gone: Waits until the client has disconnected.
        user: Who asks, by the name of the token.
        raw_body: The body as it came.
        subject: What an act concerns, for the audit log; empty for the id of the path.
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
        """The query's parameters; of one that is repeated, the first value counts."""
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
    """Return compact JSON. Text that UTF-8 cannot carry is replaced."""
    return _dump(payload).encode("utf-8", "replace")


def _refuse(constant: str) -> object:
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
