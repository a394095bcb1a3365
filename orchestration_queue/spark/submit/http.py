"""One request, one connection, a few seconds at most: between two of them what answers may be restarted."""

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
    """It does not answer; ``maybe_heard`` says whether it may have done what it was asked."""

    def __init__(self, url: str, cause: object, *, maybe_heard: bool) -> None:
        self.maybe_heard = maybe_heard
        super().__init__(f"{url} does not answer ({cause})")


class MasterRefusedError(Exception):
    """It answers that it will not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        status: The HTTP status.
        headers: Its headers.
        body: Its body.
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
        method: HTTP's method.
        url: The whole address.
        body: JSON.
        headers: More headers.
        tls: How to trust, and by what to be trusted; default as Python does.

    Raises:
        MasterUnreachableError: There is no answer.
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
    """Read an object.

    Raises:
        MasterUnreachableError: It is not one.
    """
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise MasterUnreachableError(url, f"it says {text[:80]!r}", maybe_heard=True)
    return said


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that speaks JSON.

    Attributes:
        url: Its address.
        headers: What each request carries.
        tls: As for :func:`ask`.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Send a request and return the object that it is answered with; None for what is not there.

        Raises:
            MasterUnreachableError: It does not answer, or is busy with errors of its own.
            MasterRefusedError: It will not.
        """
        answer = self.ask(method, path, body)
        return None if answer is None else read_json(self.url, answer.body or b"{}")

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer | None:
        """As :meth:`call`, and return the answer as it is."""
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
