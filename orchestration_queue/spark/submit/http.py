"""HTTP requests with a timeout of seconds, each on a new connection, since servers may restart between two of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Answer", "HttpServer", "MasterRefusedError", "MasterUnreachableError", "ask", "read_json"]

_SECONDS = 10.0
_WORDS = 300


class MasterUnreachableError(Exception):
    """The server does not answer; ``maybe_heard`` says whether it may have acted on the request."""

    def __init__(self, url: str, cause: object, *, maybe_heard: bool) -> None:
        self.maybe_heard = maybe_heard
        super().__init__(f"{url} does not answer ({cause})")


class MasterRefusedError(Exception):
    """The server refused the request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response.

    Attributes:
        status: The HTTP status.
        headers: The headers.
        body: The body.
    """

    status: int
    headers: Message
    body: bytes


def ask(
    method: str,
    url: str,
    body: bytes | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send a request, and return the answer, whatever its status.

    Args:
        method: The HTTP method.
        url: The whole URL.
        body: A JSON document.
        headers: Additional headers.
        tls: Trusted authorities and client certificate; default: Python's own.

    Raises:
        MasterUnreachableError: The server does not answer.
    """
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2]
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    said = {"Content-Type": "application/json;charset=utf-8", **(headers or {})}
    maybe_heard = False
    try:
        with contextlib.closing(_connection(parts.scheme, address, tls)) as connection:
            connection.connect()
            maybe_heard = True
            connection.request(method, target, body, said)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise MasterUnreachableError(f"{parts.scheme}://{parts.netloc}", error, maybe_heard=maybe_heard) from None


def _connection(scheme: str, address: str, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(address, timeout=_SECONDS, context=tls)
    return http.client.HTTPConnection(address, timeout=_SECONDS)


def read_json(url: str, text: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        MasterUnreachableError: The text is not a JSON object.
    """
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise MasterUnreachableError(url, f"its response is {text[:80]!r}", maybe_heard=True)
    return said


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that speaks JSON.

    Attributes:
        url: Its address.
        headers: The headers of each request.
        tls: As for :func:`ask`.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Send a request and return the object in the response; None if the resource does not exist.

        Raises:
            MasterUnreachableError: The server does not answer, or has an internal error.
            MasterRefusedError: The server refused the request.
        """
        answer = self.ask(method, path, body)
        return None if answer is None else read_json(self.url, answer.body or b"{}")

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer | None:
        """Send a request as :meth:`call` does, and return the response."""
        text = None if body is None else json.dumps(body).encode()
        answer = ask(method, self.url + path, text, headers=self.headers, tls=self.tls)
        if answer.status == http.client.NOT_FOUND:
            return None
        words = " ".join(answer.body.decode("utf-8", "replace").split())[:_WORDS]
        if answer.status >= http.client.INTERNAL_SERVER_ERROR:
            raise MasterUnreachableError(self.url, f"HTTP {answer.status}: {words}", maybe_heard=True)
        if answer.status >= http.client.BAD_REQUEST:
            raise MasterRefusedError(f"{self.url} answers HTTP {answer.status}: {words}")
        return answer
