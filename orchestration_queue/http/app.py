"""The ASGI app: reads requests, finds the route, checks access, and writes responses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orchestration_queue._extras import named_extra
from orchestration_queue._logging import get_logger
from orchestration_queue.errors import NotFoundError, OrchestrationQueueError, UsageError
from orchestration_queue.http.access import Access, DeniedError
from orchestration_queue.http.asgi import (
    SSE_HEADERS,
    Allow,
    AsgiScope,
    Receive,
    Send,
    gone,
    host_name,
    is_own,
    path_of,
    read_body,
    send_allow,
    send_bytes,
    send_json,
    send_unknown,
)
from orchestration_queue.http.messages import MISSING, HttpError, Json, Raw, Request, Response, Stream, parse_body
from orchestration_queue.http.openapi import openapi
from orchestration_queue.http.routes import PROXY_ROUTES, HttpRouter, Route, Scope
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1 import OWN_ROUTES, answer, problem
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import AsyncConnection
from orchestration_queue.wires import WIRES

if TYPE_CHECKING:
    from orchestration_queue.http.console import Console

__all__ = ["API_ROUTES", "HttpApp", "create_app"]

API_ROUTES: tuple[Route, ...] = (
    *PROXY_ROUTES,
    *OWN_ROUTES,
    *(route for wire in WIRES for route in wire.load("http").ROUTES),
)
"""The routes for programs: those of glide-mq's proxy, and our own below ``/v1``."""
_SAFE_METHODS = ("GET", "OPTIONS")
_STALLED_S = 30.0
"""A client that reads nothing for this long is disconnected. It resumes after the last event that it received."""
_END_S = 1.0
_log = get_logger("orchestration_queue.http")


class HttpApp:
    """An ASGI 3 application. It runs on its own, or mounted in another application below any path.

    Args:
        service: Handles requests.
        access: The tokens and what they allow.
        console: The pages for browsers; None for none.
        hosts: The host names that it serves; None serves all.
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
        self.routes = (*API_ROUTES, described, *(console.routes if console else ()))
        self._router = HttpRouter(self.routes)

    async def _describe(self, _: Request) -> Json:
        """Return this document."""
        return Json(openapi(API_ROUTES))

    async def aclose(self) -> None:
        """End all streams and disconnect; a mounted app's owner calls it at shutdown. Safe to call twice."""
        if self.console is not None:
            await self.console.aclose()
        await self.service.aclose()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            asked = await receive()
            if asked["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        # Reversed, so that the first of repeated headers counts.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        try:
            response = await self._answer(scope, receive, headers, method)
        except HttpError as error:
            if is_own(scope):
                response = problem(
                    error.status, error.text or f"There is no route {scope['path']!r}; see /openapi.json."
                )
            elif error.status == 404 and not error.text:
                await send_unknown(scope, send)
                return
            else:
                response = Json({"error": error.text}, error.status)
        if isinstance(response, Stream):
            await self._stream(response, receive, send, is_head=scope["method"] == "HEAD")
        elif isinstance(response, Raw):
            await send_bytes(
                send, response.status, list(response.headers), response.body, is_head=scope["method"] == "HEAD"
            )
        elif response.status == 200 and isinstance(response.payload, Allow):
            await send_allow(response.payload, send)
        else:
            await send_json(response, headers, scope["method"], send)

    async def _answer(self, scope: AsgiScope, receive: Receive, headers: Mapping[str, str], method: str) -> Response:
        # The body comes before the route, as in glide-mq's proxy: malformed JSON is 400 wherever it is sent.
        raw_body = await read_body(receive, headers)
        body = parse_body(raw_body, headers.get("content-type", ""))
        path = path_of(scope)
        self._check_origin(method, headers)
        if method == "OPTIONS":
            if not (methods := self._router.methods(path)):
                raise HttpError(404, "")
            return Json(Allow(methods))
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
            gone(receive),
            raw_body=raw_body,
            path=scope["path"],
        )
        return await self._handle(route, request)

    def _check_origin(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse requests that a browser sends on behalf of another site, or to an unknown host name."""
        host = headers.get("host", "")
        if self.hosts is not None and host_name(host) not in self.hosts:
            raise HttpError(403, "This host name is not served")
        origin = headers.get("origin")
        if method not in _SAFE_METHODS and origin is not None and origin.partition("://")[2] != host:
            raise HttpError(403, "Requests from other sites are refused")

    async def _handle(self, route: Route, request: Request) -> Response:
        try:
            if self.console is not None and route.is_page:
                return await self.console.answer(route, request)
            if route.is_own:
                return await answer(self.access, route, request)
            if route.scope is not Scope.OPEN:
                self.access.throttle(request.headers)
                request.user = self.access.check(route.scope, request.headers, _queues_of(route, request))
            return await self._act(route, request)
        except DeniedError as denied:
            return Json({"error": denied.text}, denied.status, headers=denied.headers)
        except HttpError:
            raise
        except (UsageError, NotFoundError, OrchestrationQueueError) as error:
            raise _translate(error, self.service) from None
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

    async def _stream(self, stream: Stream, receive: Receive, send: Send, *, is_head: bool) -> None:
        """Write messages until they end, the client disconnects or stops reading, or the app closes."""
        await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        writing = asyncio.ensure_future(_write(stream, send, is_head=is_head))
        others = [asyncio.ensure_future(gone(receive)()), asyncio.ensure_future(self.service.closing.wait())]
        try:
            await asyncio.wait([writing, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, *others):
                task.cancel()
            await asyncio.gather(writing, *others, return_exceptions=True)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_END_S):  # a client that reads nothing would delay the shutdown
                await send({"type": "http.response.body", "body": b""})


async def _write(stream: Stream, send: Send, *, is_head: bool) -> None:
    parts: Any = stream.parts
    try:
        async for part in parts:
            if is_head:
                break
            try:
                async with asyncio.timeout(_STALLED_S):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            except TimeoutError:
                _log.info("A stream has ended: its client read nothing for %s s", _STALLED_S)
                break
    except OrchestrationQueueError as error:
        _log.info("A stream has ended: %s", error)
    finally:
        await parts.aclose()


def _translate(error: OrchestrationQueueError, service: Service) -> HttpError:
    if service.closing.is_set():
        return HttpError(503, "Proxy is shutting down")
    if isinstance(error, NotFoundError):
        return HttpError(404, "Job not found")
    if isinstance(error, UsageError):
        return HttpError(400, str(error))
    _log.warning("A request failed: %s", error)
    return HttpError(500, "Internal server error")


def _queues_of(route: Route, request: Request) -> list[str]:
    """Return the queues that a request names; for flows, those in the body."""
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
    wires: Mapping[str, Sequence[str]] | None = None,
    dagster: str | None = None,
    traces: str | None = None,
) -> HttpApp:
    """Return the app that serves a server's queues over HTTP.

    It connects at the first request. Run it by ``oq serve``, by any ASGI server, or mounted in another app, which then
    calls :meth:`HttpApp.aclose` at shutdown.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.
        queues: The queues that may be named; None allows all, an empty list none.
        compression: ``none`` or ``gzip``: how the data of jobs is written.
        access: Tokens and what they allow; default: everything is allowed, for use behind your own authentication.
        console: Also serve the console's pages below ``/ui``.
        hosts: The host names that it serves; None serves all.
        wires: Names of queues of other wires to show, by wire: ``{"chasquimq": ["emails"]}``.
        dagster: URL of Dagster's web server; the console links step jobs to their runs there.
        traces: URL of a trace, with ``{trace_id}`` for its id; the console links jobs to the traces that added them.

    Raises:
        UsageError: A URL is invalid, or both ``url`` and ``connection`` are given, the compression is unknown,
            a wire is unknown, or a name is empty.
    """
    service = Service(url, connection=connection, prefix=prefix, queues=queues, compression=compression, wires=wires)
    access = access or Access()
    pages = None
    if console:
        with named_extra():
            from orchestration_queue.http.console import Console  # only the console needs Jinja2

        pages = Console(service, access, dagster, traces)
    return HttpApp(service, access, console=pages, hosts=hosts)
