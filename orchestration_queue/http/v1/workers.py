"""Own routes of workers: who is alive with what, and commands to them."""

from __future__ import annotations

from typing import Any, cast

from orchestration_queue.client import WorkerReply
from orchestration_queue.errors import UsageError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import members, plain, seconds_of
from orchestration_queue.protocol.operations.worker_signals import WorkerVerb

__all__ = ["control_workers", "list_workers", "stop_workers"]

_VERBS = ("ping", "pause", "resume", "concurrency")
_LONGEST_S = 20
_LONGEST_SUBJECT = 500


async def list_workers(request: Request) -> Json:
    """List the workers that are alive: their jobs, tasks, slots, memory and version."""
    return Json({"workers": plain(await request.service.queue(request.params["name"]).workers())})


async def control_workers(request: Request) -> Json:
    """Send workers ``ping``, ``pause``, ``resume`` or ``concurrency``; return their replies."""
    verb = request.params["verb"]
    if verb not in _VERBS:
        raise UsageError(f"The command must be one of {', '.join(_VERBS)} or stop; got {verb!r}.")
    return await _tell(request, cast(WorkerVerb, verb), "workers", "concurrency", "timeout")


async def stop_workers(request: Request) -> Json:
    """Stop workers after their running jobs, as SIGTERM does."""
    return await _tell(request, "stop", "workers", "timeout")


async def _tell(request: Request, verb: WorkerVerb, *known: str) -> Json:
    body = members(request, *known)
    named = body.get("workers")
    request.subject = ", ".join(map(str, named))[:_LONGEST_SUBJECT] if isinstance(named, list) else "all"
    queue = await request.service.waiting_queue(request.params["name"])
    replies = await queue.control_workers(
        verb,
        named,
        concurrency=body.get("concurrency"),
        timeout=seconds_of(body, "timeout", 2, most=_LONGEST_S),
    )
    return Json({"replies": [_shape(reply) for reply in replies]})


def _shape(reply: WorkerReply) -> dict[str, Any]:
    return {**plain(reply), "has_obeyed": reply.has_obeyed}
