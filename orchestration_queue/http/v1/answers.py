"""What all own routes share: who may ask, which queues, the audit log, and errors as problem+json (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus

from orchestration_queue.errors import (
    NotFoundError,
    OrchestrationQueueError,
    ServerError,
    StateError,
    TransportError,
    UsageError,
)
from orchestration_queue.http.access import Access, DeniedError
from orchestration_queue.http.messages import HttpError, Json, Request, Response
from orchestration_queue.http.routes import Route, Scope

__all__ = ["answer", "problem"]

_log = logging.getLogger("orchestration_queue.http")

_STATUS: tuple[tuple[type[OrchestrationQueueError], int], ...] = (
    (UsageError, 400),
    (NotFoundError, 404),
    (StateError, 409),
    (TransportError, 503),
    (ServerError, 502),
)


def problem(status: int, detail: str, error: str | None = None) -> Json:
    """Return a refusal.

    Args:
        status: The HTTP status.
        detail: The sentence for people: what, why, and what to do.
        error: The package's error class, for programs.
    """
    sentence = detail if detail.endswith((".", "`")) else f"{detail}."
    body: dict[str, object] = {"title": _title(status), "status": status, "detail": sentence}
    return Json(body | ({"error": error} if error else {}), status, b"application/problem+json")


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Refused"


async def answer(access: Access, route: Route, request: Request) -> Response:
    """Answer a request to an own route."""

    def allow(queues: Iterable[str]) -> None:
        names = list(queues)
        request.user = access.check(route.scope, request.headers, names)
        for name in () if route.is_of_dialect else names:
            request.service.check_allowed(name)

    request.allow = allow
    try:
        access.throttle(request.headers)
        allow([request.params["name"]] if route.names_queue else [])
        request.service.check_open()
        response = await route.handler(request)
        if route.scope in (Scope.ACT, Scope.ADMIN):
            what = f"{route.method} {route.path}"
            subject = request.subject or request.params.get("id", "")
            await request.service.audit(request.user, what, request.params.get("name", ""), subject)
    except DeniedError as denied:
        return replace(problem(denied.status, denied.text), headers=denied.headers)
    except HttpError as error:
        return problem(error.status, error.text)
    except OrchestrationQueueError as error:
        if request.service.closing.is_set():
            return problem(503, "The server of these routes is shutting down; try again later.")
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        if status >= 500:
            _log.warning("%s %s failed: %s", request.method, route.path, error)
        return problem(status, str(error), type(error).__name__)
    except Exception:
        _log.exception("%s %s failed", request.method, route.path)
        return problem(500, "This request failed in a way that was not foreseen; the log of the HTTP server has more.")
    return response
