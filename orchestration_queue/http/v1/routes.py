"""The own routes as data, and what they share: access, the audit log, and errors as problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus

from orchestration_queue._logging import get_logger
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
from orchestration_queue.http.v1 import alerts, findings, flows, jobs, queues, schedulers, taking

__all__ = ["OWN_ROUTES", "answer", "problem"]

_log = get_logger("orchestration_queue.http")

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
        detail: The sentence for humans: what is wrong, why, and what to do.
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
        for name in () if route.is_of_wire else names:
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
            return problem(503, "This HTTP server is shutting down; try again later.")
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        if status >= 500:
            _log.warning("%s %s failed: %s", request.method, route.path, error)
        return problem(status, str(error), type(error).__name__)
    except Exception:
        _log.exception("%s %s failed", request.method, route.path)
        return problem(500, "This request failed unexpectedly; see the log of the HTTP server.")
    return response


_READ, _WORK, _ACT, _ADMIN = Scope.READ, Scope.WORK, Scope.ACT, Scope.ADMIN
_Q = "/v1/queues/:name"
_J, _D, _F, _S = f"{_Q}/jobs", f"{_Q}/dead-letters", f"{_Q}/flows", f"{_Q}/schedulers"
_T, _W, _TAKEN = f"{_Q}/tags", f"{_Q}/workers", f"{_Q}/taken/:id"

OWN_ROUTES: tuple[Route, ...] = (
    Route("GET", f"{_Q}/search", _READ, jobs.search_jobs),
    Route("POST", f"{_Q}/search/remove", _ADMIN, jobs.remove_found),
    Route("POST", f"{_Q}/search/move", _ACT, jobs.move_found),
    Route("POST", f"{_Q}/search/:verb", _ACT, jobs.change_found),
    Route("GET", f"{_Q}/failures", _READ, jobs.list_failures),
    Route("POST", f"{_Q}/failures/retry", _ACT, jobs.retry_failures),
    Route("GET", f"{_J}/:id", _READ, jobs.show_job),
    Route("POST", f"{_J}/:id/move", _ACT, jobs.move_job),
    Route("GET", f"{_J}/:id/explanation", _READ, jobs.explain_job),
    Route("GET", f"{_J}/:id/history", _READ, jobs.job_history),
    Route("GET", f"{_J}/:id/steps", _READ, jobs.job_steps),
    Route("GET", _D, _READ, jobs.list_letters),
    Route("DELETE", _D, _ADMIN, jobs.drop_letters),
    Route("POST", f"{_D}/replay", _ACT, jobs.replay_letters),
    Route("GET", f"{_D}/:id", _READ, jobs.show_letter),
    Route("DELETE", f"{_D}/:id", _ACT, jobs.drop_letter),
    Route("POST", f"{_D}/:id/replay", _ACT, jobs.replay_letter),
    Route("GET", _F, _READ, flows.list_flows),
    Route("GET", f"{_F}/:id", _READ, flows.show_flow),
    Route("GET", f"{_Q}/runs", _READ, flows.list_runs),
    Route("GET", f"{_F}/:id/tree", _READ, flows.show_tree),
    Route("GET", f"{_F}/:id/explanation", _READ, flows.explain_flow),
    Route("POST", f"{_F}/:id/cancel", _ACT, flows.cancel_flow),
    Route("POST", f"{_F}/:id/retry", _ACT, flows.retry_flow),
    Route("POST", f"{_F}/:id/pause", _ACT, flows.pause_flow),
    Route("POST", f"{_F}/:id/resume", _ACT, flows.resume_flow),
    Route("GET", _S, _READ, schedulers.list_planned),
    Route("GET", f"{_S}/:id", _READ, schedulers.show_scheduler),
    Route("PATCH", f"{_S}/:id", _ACT, schedulers.change_scheduler),
    Route("POST", f"{_S}/:id/preview", _READ, schedulers.preview_scheduler),
    Route("POST", f"{_S}/:id/run", _ACT, schedulers.run_scheduler),
    Route("POST", f"{_S}/:id/pause", _ACT, schedulers.pause_scheduler),
    Route("POST", f"{_S}/:id/resume", _ACT, schedulers.resume_scheduler),
    Route("GET", f"{_Q}/settings", _READ, queues.show_settings),
    Route("PATCH", f"{_Q}/settings", _ACT, queues.change_settings),
    Route("GET", f"{_Q}/shares", _READ, queues.list_shares),
    Route("PUT", f"{_Q}/shares/:share", _ACT, queues.set_share),
    Route("DELETE", f"{_Q}/shares/:share", _ACT, queues.unset_share),
    Route("GET", f"{_Q}/statistics", _READ, queues.show_statistics),
    Route("POST", f"{_J}/:id/tags", _ACT, jobs.tag_job),
    Route("GET", _T, _READ, jobs.list_tags),
    Route("GET", f"{_T}/:tag/jobs", _READ, jobs.list_tagged),
    Route("POST", f"{_T}/:tag/retry", _ACT, jobs.retry_tagged),
    Route("POST", f"{_T}/:tag/cancel", _ACT, jobs.cancel_tagged),
    Route("POST", f"{_T}/:tag/move", _ACT, jobs.move_tagged),
    Route("POST", f"{_T}/:tag/remove", _ADMIN, jobs.remove_tagged),
    Route("GET", _W, _READ, queues.list_workers),
    Route("POST", f"{_W}/stop", _ADMIN, queues.stop_workers),
    Route("POST", f"{_W}/:verb", _ACT, queues.control_workers),
    Route("POST", f"{_Q}/take", _WORK, taking.take_jobs),
    Route("POST", f"{_TAKEN}/complete", _WORK, taking.complete_taken),
    Route("POST", f"{_TAKEN}/fail", _WORK, taking.fail_taken),
    Route("POST", f"{_TAKEN}/retry", _WORK, taking.retry_taken),
    Route("POST", f"{_TAKEN}/release", _WORK, taking.release_taken),
    Route("POST", f"{_TAKEN}/heartbeat", _WORK, taking.heartbeat_taken),
    Route("GET", "/v1/pools", _READ, queues.list_pools),
    Route("GET", "/v1/pools/:pool", _READ, queues.show_pool),
    Route("PUT", "/v1/pools/:pool", _ACT, queues.set_pool),
    Route("DELETE", "/v1/pools/:pool", _ADMIN, queues.remove_pool),
    Route("GET", "/v1/alerts", _READ, alerts.list_alerts),
    Route("GET", "/v1/alerts/:rule", _READ, alerts.show_alert),
    Route("PUT", "/v1/alerts/:rule", _ACT, alerts.set_alert),
    Route("DELETE", "/v1/alerts/:rule", _ACT, alerts.remove_alert),
    Route("POST", "/v1/alerts/:rule/silence", _ACT, alerts.silence_alert),
    Route("POST", "/v1/alerts/:rule/test", _ACT, alerts.test_alert),
    Route("GET", "/v1/alert-events", _READ, alerts.list_alert_events),
    Route("GET", f"{_Q}/doctor", _READ, findings.diagnose_queue),
    Route("GET", "/v1/doctor", _READ, findings.diagnose),
    Route("POST", "/v1/doctor/fix", _ADMIN, findings.fix_finding),
)
