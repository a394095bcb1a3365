"""Own routes of alert rules. Receivers are only named: their addresses are known where alerts are evaluated."""

from __future__ import annotations

from orchestration_queue.alerts.describing import describe, describe_evaluator, describe_event
from orchestration_queue.client import AsyncAlerts
from orchestration_queue.errors import UsageError
from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.reading import members, plain, seconds_of, text, whole
from orchestration_queue.options import AlertRule
from orchestration_queue.options.alert import MAX_SILENCE

__all__ = [
    "alerts_of",
    "list_alert_events",
    "list_alerts",
    "remove_alert",
    "set_alert",
    "show_alert",
    "silence_alert",
    "test_alert",
]

_TEST_S = 30
_EVENTS, _MOST_EVENTS = 100, 10_000


def alerts_of(service: Service) -> AsyncAlerts:
    """Return the alert rules, which concern all queues.

    Raises:
        HttpError: This app serves only some queues.
    """
    if service.allowed is not None:
        raise HttpError(403, "Alert rules concern all queues, and this app serves only some; use `oq alert`.")
    return AsyncAlerts(connection=service.connection, prefix=service.prefix)


async def list_alerts(request: Request) -> Json:
    """List all alert rules, what they do at present, and the process that evaluates them."""
    alerts = alerts_of(request.service)
    found, evaluator = await alerts.list(), await alerts.evaluator()
    return Json(plain({"evaluator": describe_evaluator(evaluator), "alerts": [describe(alert) for alert in found]}))


async def show_alert(request: Request) -> Json:
    """Return an alert rule and what it does at present."""
    return Json(plain(describe(await alerts_of(request.service).get(request.params["rule"]))))


async def set_alert(request: Request) -> Json:
    """Add or replace an alert rule. Durations are in seconds."""
    rule = members(request, *AlertRule.model_fields)
    request.subject = name = request.params["rule"]
    return Json(plain(describe(await alerts_of(request.service).set(name, rule))))


async def remove_alert(request: Request) -> Json:
    """Remove an alert rule. If it fires, its receivers get a message that it is over."""
    request.subject = name = request.params["rule"]
    return Json({"removed": await alerts_of(request.service).remove(name)})


async def silence_alert(request: Request) -> Json:
    """Send no messages of an alert rule for a time; 0 seconds end a silence."""
    body = members(request, "seconds")
    if "seconds" not in body:
        raise UsageError('The body must have `seconds`; pass {"seconds": 3600}, for example.')
    length = seconds_of(body, "seconds", 0, most=MAX_SILENCE.total_seconds())
    request.subject = name = request.params["rule"]
    until = await alerts_of(request.service).silence(name, length, by=request.user)
    return Json({"silenced_until": plain(until)})


async def test_alert(request: Request) -> Json:
    """Send a test message to each receiver of an alert rule, and wait for the outcomes."""
    request.subject = name = request.params["rule"]
    try:
        events = await alerts_of(request.service).test(name, timeout=_TEST_S)
    except TimeoutError as error:
        raise HttpError(504, str(error)) from None
    return Json({"outcomes": plain([describe_event(event) for event in events])})


async def list_alert_events(request: Request) -> Json:
    """List what alert rules did and what was sent, newest first: of the last ``limit`` events those of ``rule``."""
    limit = whole(request, "limit", _EVENTS, most=_MOST_EVENTS)
    events = await alerts_of(request.service).history(text(request, "rule"), limit=limit)
    return Json({"events": plain([describe_event(event) for event in events])})
