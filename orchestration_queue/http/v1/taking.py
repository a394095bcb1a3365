"""Own routes of the pull API: take jobs without a worker, in any language, and report their outcomes."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from orchestration_queue.client import AsyncTakenJob
from orchestration_queue.errors import Failed, OrchestrationQueueError, UnrecoverableError, UsageError
from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.v1.reading import job_shape, members, seconds_of

__all__ = ["complete_taken", "fail_taken", "heartbeat_taken", "release_taken", "retry_taken", "take_jobs"]

_LONGEST_WAIT_S = 60
_LOOK_S = 2
"""How long it may take to notice that a client disconnected."""


class _LastFailedError(Failed, UnrecoverableError):
    """A failure after which the job is not retried."""


async def take_jobs(request: Request) -> Json:
    """Take up to ``count`` jobs, each with the ``token`` that the routes below ``/taken`` need to finish it."""
    body = members(request, "count", "lease", "wait")
    wait_s = seconds_of(body, "wait", 0, most=_LONGEST_WAIT_S)
    queue = await request.service.waiting_queue(request.params["name"])
    gone = asyncio.ensure_future(request.gone()) if request.gone else None
    try:
        deadline = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            taken = await queue.take(body.get("count", 1), lease=body.get("lease"), wait=min(_LOOK_S, left_s))
            try:
                request.service.check_open()
                if gone and gone.done():
                    raise HttpError(499, "The client has disconnected")
            except HttpError:
                # Otherwise no worker runs them until their leases expire.
                await _give_back(taken)
                raise
            if taken or not left_s:
                break
    finally:
        if gone:
            gone.cancel()
    return Json({"jobs": [job_shape(each.job) | {"attempt": each.attempt, "token": each.token} for each in taken]})


async def _give_back(taken: list[AsyncTakenJob]) -> None:
    for each in taken:
        with suppress(OrchestrationQueueError):
            await each.release()


async def _parse_taken(request: Request, *known: str) -> tuple[AsyncTakenJob, dict[str, Any]]:
    body = dict(members(request, "token", *known))
    queue = request.service.queue(request.params["name"])
    taken = await queue.taken(request.params["id"], body.pop("token", None), lease=body.get("lease"))
    return taken, body


def _reason(given: object) -> str:
    if not isinstance(given, str) or not given:
        raise UsageError(f"`reason` must be a non-empty string, got {str(given)[:80]!r}; say what went wrong.")
    return given.encode("utf-8", "replace").decode()


async def complete_taken(request: Request) -> Json:
    """Complete a taken job."""
    taken, body = await _parse_taken(request, "result")
    await taken.complete(body.get("result"))
    return Json({"id": taken.id, "state": "completed"})


async def fail_taken(request: Request) -> Json:
    """Count a failed attempt for a ``reason``, of a ``kind``; with ``retry`` false it is the last."""
    taken, body = await _parse_taken(request, "reason", "kind", "retry")
    reason, may_retry = _reason(body.get("reason")), body.get("retry", True)
    if not isinstance(may_retry, bool):
        raise UsageError(f"`retry` must be true or false, got {str(may_retry)[:80]!r}; leave it out for true.")
    failure = (Failed if may_retry else _LastFailedError)(reason, kind=body.get("kind", "failed"))
    return Json({"id": taken.id, "will_retry": await taken.fail(failure)})


async def retry_taken(request: Request) -> Json:
    """Count a failed attempt and retry after ``delay`` seconds, even without attempts left."""
    taken, body = await _parse_taken(request, "delay", "reason")
    await taken.retry(body.get("delay", 0), reason=_reason(body.get("reason", "retried by its taker")))
    return Json({"id": taken.id, "will_retry": True})


async def release_taken(request: Request) -> Json:
    """Return a taken job without counting an attempt, to start after ``delay`` seconds."""
    taken, body = await _parse_taken(request, "delay")
    await taken.release(body.get("delay", 0))
    return Json({"id": taken.id, "state": "released"})


async def heartbeat_taken(request: Request) -> Json:
    """Renew a taken job's lease for at least ``lease`` seconds; stop the job if ``is_cancelled``."""
    taken, _ = await _parse_taken(request, "lease")
    return Json({"id": taken.id, "is_cancelled": not await taken.heartbeat()})
