"""The ASGI app: reads requests, finds the route, checks who asks, and writes responses."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote_to_bytes

from orchestration_queue.errors import NotFoundError, OrchestrationQueueError, UsageError
from orchestration_queue.http.access import Access, DeniedError
from orchestration_queue.http.messages import (
    MISSING,
    HttpError,
    Json,
    Raw,
    Request,
    Response,
    Stream,
    dump,
    parse_body,
)
from orchestration_queue.http.openapi import openapi
from orchestration_queue.http.router import Router
from orchestration_queue.http.routes import PROXY_ROUTES, Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import AsyncConnection

if TYPE_CHECKING:
    from orchestration_queue.http.console import Console

__all__ = ["HttpApp", "create_app"]

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Headers: TypeAlias = list[tuple[bytes, bytes]]

MAX_BODY = 1_048_576
_SAFE_METHODS = ("GET", "OPTIONS")
_log = logging.getLogger("orchestration_queue.http")

_SSE_HEADERS: _Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
]


class HttpApp:
    """An ASGI 3 application. It runs by itself, or mounted in another application below any path.

    Args:
        service: What answers.
        access: Who may do what.
        console: The pages for browsers; None for none.
        hosts: The host names that it answers to; None answers to all.
    """

    def __init__(
        self,
        service: Service,
        access: Access,
        *,
        console: Console | None = None,
        hosts: Sequence[str] | None = None,
    ) -> None:
        self.service, self.access, self.console = service, access, console
        self.hosts = None if hosts is None else frozenset(hosts)
        described = Route("GET", "/openapi.json", Scope.OPEN, self._describe)
        self.routes = (*PROXY_ROUTES, described, *(console.routes if console else ()))
        self._router = Router(self.routes)

    async def _describe(self, _: Request) -> Json:
        """Return this document."""
        return Json(openapi(PROXY_ROUTES))

    async def aclose(self) -> None:
        """End all streams and disconnect; a mounted app's owner calls it at shutdown. Safe to call twice."""
        await self.service.aclose()

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Serve one connection of the ASGI server."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: _Receive, send: _Send) -> None:
        while True:
            asked = await receive()
            if asked["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        try:
            response = await self._answer(scope, receive, headers, method)
        except HttpError as error:
            if error.status == 404 and not error.text:
                await _send_unknown(scope, send)
                return
            response = Json({"error": error.text}, error.status)
        if isinstance(response, Stream):
            await self._stream(response, receive, send, is_head=scope["method"] == "HEAD")
        elif isinstance(response, Raw):
            await _send_bytes(
                send, response.status, list(response.headers), response.body, is_head=scope["method"] == "HEAD"
            )
        elif response.status == 200 and isinstance(response.payload, _Allow):
            await _send_allow(response.payload, send)
        else:
            await _send_json(response, headers, scope["method"], send)

    async def _answer(self, scope: _Scope, receive: _Receive, headers: Mapping[str, str], method: str) -> Response:
        # The body comes before the route, as in glide-mq's proxy: malformed JSON is 400 wherever it is sent.
        raw_body = await _read_body(receive, headers)
        body = parse_body(raw_body, headers.get("content-type", ""))
        path = _path(scope)
        self._check_origin(method, headers)
        if method == "OPTIONS":
            if not (methods := self._router.methods(path)):
                raise HttpError(404, "")
            return Json(_Allow(methods))
        found = self._router.find(method, path)
        if found is None:
            raise HttpError(404, "")
        route, params = found
        request = Request(
            self.service,
            method,
            params,
            scope.get("query_string", b"").decode("latin-1"),
            headers,
            body,
            _gone(receive),
            raw_body=raw_body,
            path=scope["path"],
        )
        return await self._handle(route, request)

    def _check_origin(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse what a browser sends on behalf of another site, or to this machine under another name."""
        host = headers.get("host", "")
        if self.hosts is not None and _host_name(host) not in self.hosts:
            raise HttpError(403, "This host name is not served")
        origin = headers.get("origin")
        if method not in _SAFE_METHODS and origin is not None and origin.partition("://")[2] != host:
            raise HttpError(403, "Requests from other sites are refused")

    async def _handle(self, route: Route, request: Request) -> Response:
        try:
            if self.console is not None and route.is_page:
                return await self.console.answer(route, request)
            if route.scope is not Scope.OPEN:
                request.user = self.access.check(route.scope, request.headers, _queues_of(route, request))
            return await self._act(route, request)
        except DeniedError as denied:
            return Json({"error": denied.text}, denied.status)
        except HttpError:
            raise
        except (UsageError, NotFoundError, OrchestrationQueueError) as error:
            raise _translated(error, self.service) from None
        except Exception:
            _log.exception("%s %s failed", request.method, route.path)
            raise HttpError(500, "Internal server error") from None

    async def _act(self, route: Route, request: Request) -> Response:
        if route.names_queue:
            self.service.check_allowed(request.params["name"])
        response = await route.handler(request)
        if route.scope in (Scope.ACT, Scope.ADMIN):
            what = f"{route.method} {route.path}"
            await self.service.audit(request.user, what, request.params.get("name", ""), request.params.get("id", ""))
        return response

    async def _stream(self, stream: Stream, receive: _Receive, send: _Send, *, is_head: bool) -> None:
        """Write messages until they end, the client has gone, or the app closes. A slow client slows its own reads."""
        await send({"type": "http.response.start", "status": 200, "headers": _SSE_HEADERS})
        writing = asyncio.ensure_future(_write(stream, send, is_head=is_head))
        others = [asyncio.ensure_future(_gone(receive)()), asyncio.ensure_future(self.service.closing.wait())]
        try:
            await asyncio.wait([writing, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, *others):
                task.cancel()
            await asyncio.gather(writing, *others, return_exceptions=True)
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b""})


async def _write(stream: Stream, send: _Send, *, is_head: bool) -> None:
    parts: Any = stream.parts
    try:
        async for part in parts:
            if is_head:
                break
            await send({"type": "http.response.body", "body": part, "more_body": True})
    except OrchestrationQueueError as error:
        _log.info("A stream has ended: %s", error)
    finally:
        await parts.aclose()


def _translated(error: OrchestrationQueueError, service: Service) -> HttpError:
    if service.closing.is_set():
        return HttpError(503, "Proxy is shutting down")
    if isinstance(error, NotFoundError):
        return HttpError(404, "Job not found")
    if isinstance(error, UsageError):
        return HttpError(400, str(error))
    _log.warning("A request failed: %s", error)
    return HttpError(500, "Internal server error")


def _queues_of(route: Route, request: Request) -> list[str]:
    """Return the queues that a request names; of flows, those in the body."""
    if route.names_queue:
        return [request.params["name"]]
    if request.body is MISSING:
        return []
    found: list[str] = []
    nodes: list[Any] = [request.fields.get("flow")]
    dag = request.fields.get("dag")
    nodes += dag.get("nodes") or () if isinstance(dag, dict) and isinstance(dag.get("nodes"), list) else ()
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            found.append(str(node.get("queueName", "")))
            nodes += node["children"] if isinstance(node.get("children"), list) else ()
    return found


def _path(scope: _Scope) -> list[str]:
    """Return the decoded parts of the path, below the path at which the app is mounted."""
    raw = scope.get("raw_path") or scope["path"].encode()
    raw = raw.partition(b"?")[0]
    root = scope.get("root_path", "").rstrip("/").encode()
    if root and raw.startswith(root + b"/"):
        raw = raw[len(root) :]
    parts = raw.split(b"/")[1:]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    try:
        return [_unquoted(part) for part in parts]
    except ValueError:
        raise HttpError(400, "Bad request") from None


def _unquoted(part: bytes) -> str:
    if b"%" in part:
        for escaped in part.split(b"%")[1:]:
            int(escaped[:2] if len(escaped) > 1 else b"?", 16)
    return unquote_to_bytes(part).decode()


def _host_name(host: str) -> str:
    return host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0].lower()


def _gone(receive: _Receive) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return wait


async def _read_body(receive: _Receive, headers: Mapping[str, str]) -> bytes:
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
            return _inflated(bytes(body), headers.get("content-encoding", "identity").lower())


def _inflated(body: bytes, encoding: str) -> bytes:
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        raise HttpError(415, "Bad request")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        unpacked = unpacker.decompress(body, MAX_BODY + 1)
    except zlib.error:
        raise HttpError(400, "Bad request") from None
    if len(unpacked) > MAX_BODY:
        raise HttpError(413, "Payload too large")
    return unpacked


class _Allow(tuple[str, ...]):
    """The methods that a path knows, as the answer to OPTIONS."""

    __slots__ = ()


async def _send_allow(methods: _Allow, send: _Send) -> None:
    text = ", ".join(methods).encode()
    await _send_bytes(send, 200, [(b"allow", text), (b"content-type", b"text/plain; charset=utf-8")], text)


async def _send_unknown(scope: _Scope, send: _Send) -> None:
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
    await _send_bytes(send, 404, headers, page.encode("utf-8", "replace"), is_head=scope["method"] == "HEAD")


async def _send_json(response: Json, asked: Mapping[str, str], method: str, send: _Send) -> None:
    body = dump(response.payload)
    digest = base64.b64encode(hashlib.sha1(body, usedforsecurity=False).digest())[:27]
    tag = b'W/"%x-%s"' % (len(body), digest)
    is_known = method in ("GET", "HEAD") and response.status == 200 and _matches(asked, tag.decode())
    headers = [(b"etag", tag)]
    if is_known:
        await _send_bytes(send, 304, headers, b"", is_head=True)
        return
    headers.append((b"content-type", b"application/json; charset=utf-8"))
    await _send_bytes(send, response.status, headers, body, is_head=method == "HEAD")


def _matches(asked: Mapping[str, str], tag: str) -> bool:
    known = asked.get("if-none-match", "")
    if not known or "no-cache" in asked.get("cache-control", ""):
        return False
    return known.strip() == "*" or tag.removeprefix("W/") in [
        each.strip().removeprefix("W/") for each in known.split(",")
    ]


async def _send_bytes(send: _Send, status: int, headers: _Headers, body: bytes, *, is_head: bool = False) -> None:
    length = [] if status == 304 else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


def create_app(
    url: str | None = None,
    *,
    connection: AsyncConnection | None = None,
    prefix: str = DEFAULT_PREFIX,
    queues: Sequence[str] | None = None,
    compression: str = "none",
    access: Access | None = None,
    console: bool = False,
    hosts: Sequence[str] | None = None,
) -> HttpApp:
    """Return the app that serves a server's queues over HTTP.

    It connects at the first request. Run it by ``oq serve``, by any ASGI server, or mounted in another app, which then
    calls :meth:`HttpApp.aclose` at shutdown.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.
        queues: The queues that may be named; None allows all, an empty list none.
        compression: ``none`` or ``gzip``: how the data of jobs are written.
        access: Tokens and what they allow; default everything is allowed, for use behind your own authentication.
        console: Also serve the console's pages below ``/ui``.
        hosts: The host names that it answers to; None answers to all.

    Raises:
        UsageError: The URL cannot be read, or both ``url`` and ``connection`` are given, or the compression is unknown.
    """
    service = Service(url, connection=connection, prefix=prefix, queues=queues, compression=compression)
    access = access or Access()
    pages = None
    if console:
        from orchestration_queue.http.console import Console  # it needs Jinja2, and others do not

        pages = Console(service, access)
    return HttpApp(service, access, console=pages, hosts=hosts)
