"""Read a request's path and body, and write its response, over ASGI."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from html import escape
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

from orchestration_queue.http.messages import HttpError, Json, dump

__all__ = [
    "SSE_HEADERS",
    "Allow",
    "AsgiScope",
    "Headers",
    "Receive",
    "Send",
    "gone",
    "host_name",
    "is_own",
    "path_of",
    "read_body",
    "send_allow",
    "send_bytes",
    "send_json",
    "send_unknown",
]

AsgiScope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

# As in glide-mq's proxy.
MAX_BODY = 1_048_576
SSE_HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
]


def is_own(scope: AsgiScope) -> bool:
    """Return whether a path is below ``/v1``, where refusals are problem+json."""
    path: str = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
    return path.lower().startswith("/v1/")


def path_of(scope: AsgiScope) -> list[str]:
    """Return the decoded parts of the path, below the path at which the app is mounted."""
    # In the decoded path, slashes that belong to a name look like all others (decision 0017).
    raw = scope.get("raw_path") or scope["path"].encode()
    raw = raw.partition(b"?")[0]
    root = scope.get("root_path", "").rstrip("/").encode()
    if root and raw.startswith(root + b"/"):
        raw = raw[len(root) :]
    parts = raw.split(b"/")[1:]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    try:
        return [_unquote(part) for part in parts]
    except ValueError:
        raise HttpError(400, "Bad request") from None


def _unquote(part: bytes) -> str:
    if b"%" in part:
        for escaped in part.split(b"%")[1:]:
            # unquote_to_bytes() keeps malformed escapes, which are an error here.
            int(escaped[:2] if len(escaped) > 1 else b"?", 16)
    return unquote_to_bytes(part).decode()


def host_name(host: str) -> str:
    """Return the name in a ``Host`` header, without its port."""
    return host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0].lower()


def gone(receive: Receive) -> Callable[[], Awaitable[None]]:
    """Return a coroutine function that waits until the client disconnects."""

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return wait


async def read_body(receive: Receive, headers: Mapping[str, str]) -> bytes:
    """Return the whole body, decompressed; at most 1 MiB."""
    length = headers.get("content-length", "0")
    if length == "0" and "transfer-encoding" not in headers:
        return b""
    if length.isdecimal() and int(length) > MAX_BODY and "content-encoding" not in headers:
        raise HttpError(413, "Payload too large")
    body = bytearray()
    while True:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise HttpError(400, "Bad request")
        body += part.get("body", b"")
        if len(body) > MAX_BODY:
            raise HttpError(413, "Payload too large")
        if not part.get("more_body"):
            return _decompress(bytes(body), headers.get("content-encoding", "identity").lower())


def _decompress(body: bytes, encoding: str) -> bytes:
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        raise HttpError(415, "Bad request")
    # 32: gzip's and zlib's headers are both recognized. One byte more shows that the body is too large.
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        unpacked = unpacker.decompress(body, MAX_BODY + 1)
    except zlib.error:
        raise HttpError(400, "Bad request") from None
    if len(unpacked) > MAX_BODY:
        raise HttpError(413, "Payload too large")
    return unpacked


class Allow(tuple[str, ...]):
    """The methods of a path, as the response to OPTIONS."""

    __slots__ = ()


async def send_allow(methods: Allow, send: Send) -> None:
    """Answer OPTIONS."""
    text = ", ".join(methods).encode()
    await send_bytes(send, 200, [(b"allow", text), (b"content-type", b"text/plain; charset=utf-8")], text)


async def send_unknown(scope: AsgiScope, send: Send) -> None:
    """Answer an unknown path with the page of glide-mq's proxy."""
    line = escape(f"Cannot {scope['method']} {scope['path']}")
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Error</title>\n</head>\n'
        f"<body>\n<pre>{line}</pre>\n</body>\n</html>\n"
    )
    headers = [
        (b"content-security-policy", b"default-src 'none'"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-type", b"text/html; charset=utf-8"),
    ]
    await send_bytes(send, 404, headers, page.encode("utf-8", "replace"), is_head=scope["method"] == "HEAD")


async def send_json(response: Json, asked: Mapping[str, str], method: str, send: Send) -> None:
    """Answer with JSON, or with 304 when the client has it already."""
    body = dump(response.payload)
    digest = base64.b64encode(hashlib.sha1(body, usedforsecurity=False).digest())[:27]
    tag = b'W/"%x-%s"' % (len(body), digest)
    is_known = method in ("GET", "HEAD") and response.status == 200 and _matches(asked, tag.decode())
    headers = [(b"etag", tag), *response.headers]
    if is_known:
        await send_bytes(send, 304, headers, b"", is_head=True)
        return
    headers.append((b"content-type", response.media_type))
    await send_bytes(send, response.status, headers, body, is_head=method == "HEAD")


def _matches(asked: Mapping[str, str], tag: str) -> bool:
    known = asked.get("if-none-match", "")
    if not known or "no-cache" in asked.get("cache-control", ""):
        return False
    return known.strip() == "*" or tag.removeprefix("W/") in [
        each.strip().removeprefix("W/") for each in known.split(",")
    ]


async def send_bytes(send: Send, status: int, headers: Headers, body: bytes, *, is_head: bool = False) -> None:
    """Write a whole response."""
    length = [] if status == 304 else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b"" if is_head else body})
