"""What jobs used, budgets of flows, and the app's own health: routes R30, R31, R36 and R45 of glide-mq's proxy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from orchestration_queue.client import AsyncUsageLedger
from orchestration_queue.errors import UsageError
from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.parameters import csv, integer
from orchestration_queue.http.shapes import budget_shape, totals_shape
from orchestration_queue.server.clock import now_ms

__all__ = ["flow_budget", "flow_usage", "health", "usage_summary"]

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_KEPT_MS = 30 * 24 * _HOUR_MS
_MOST_READS = 100_000


async def flow_usage(request: Request) -> Json:
    """Return what the jobs of a flow used."""
    queue = request.service.queue(request.params["name"])
    if await queue.find(request.params["parentId"]) is None:
        raise HttpError(404, "Job not found")
    return Json(totals_shape(await queue.usage.of_flow(request.params["parentId"])))


async def flow_budget(request: Request) -> Json:
    """Return a flow's budget, and how much of it is used."""
    state = await request.service.queue(request.params["name"]).usage.budget(request.params["flowId"])
    if state is None:
        raise HttpError(404, "Flow budget not found")
    return Json(budget_shape(state))


async def usage_summary(request: Request) -> Json:
    """Sum the usage of jobs by queue, within a time window."""
    query, service = request.query, request.service
    if "window" in query and "windowMs" in query and query["window"] != query["windowMs"]:
        raise HttpError(400, "window and windowMs must match when both are provided")
    given_start, given_end = integer(query, "start", 0), integer(query, "end", 0)
    window = integer(query, "windowMs" if "windowMs" in query else "window", 1)
    end = now_ms() if given_end is None else given_end
    start = end - (_HOUR_MS if window is None else window) if given_start is None else given_start
    if start > end:
        raise HttpError(400, "startTime must be less than or equal to endTime")
    start = max(start, end - _KEPT_MS, 0)
    names = [service.check_name(name) for name in csv(query, "queues") or ()]
    for name in names:
        service.check_allowed(name)
    service.check_open()
    queues = names or (None if service.allowed is None else sorted(service.allowed))
    reads = len(queues or ()) * (end // _MINUTE_MS - start // _MINUTE_MS + 1)
    if reads > _MOST_READS:
        what = f"usage summary request exceeds maximum bucket reads ({reads} > {_MOST_READS})"
        raise HttpError(400, f"{what}; reduce queues or windowMs")
    async with AsyncUsageLedger("usage", connection=service.connection, prefix=service.prefix) as ledger:
        try:
            found = await ledger.summary(queues, _time(start), _time(end))
        except UsageError as error:
            raise HttpError(400, str(error)) from None
    total: dict[str, Any] = totals_shape(found.total)
    return Json(
        {"startTime": start, "endTime": end, "bucketSizeMs": _MINUTE_MS, "queues": sorted(found.queues)}
        | total
        | {"perQueue": {name: totals_shape(used) for name, used in sorted(found.queues.items())}}
    )


def _time(at_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise HttpError(400, "startTime must be a valid time") from None


async def health(request: Request) -> Json:
    """Report that the app runs. It does not ask the server."""
    service = request.service
    queues = 0 if service.closing.is_set() else service.used_queues
    return Json({"queues": queues, "status": "ok", "uptime": service.uptime_ms})
