"""Own routes of the ChasquiMQ and qless queues that the app serves: read, pause, and replay dead letters."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from orchestration_queue.errors import UsageError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.reading import members, page_of, plain, whole

if TYPE_CHECKING:
    from orchestration_queue.dialects.qless import QlessJob

__all__ = [
    "QLESS_STATES",
    "drop_chasqui_letters",
    "list_chasqui",
    "list_chasqui_jobs",
    "list_chasqui_letters",
    "list_chasqui_schedules",
    "list_qless_jobs",
    "pause_chasqui",
    "pause_qless",
    "qless_jobs",
    "replay_chasqui_letters",
    "resume_chasqui",
    "resume_qless",
    "show_chasqui",
    "show_qless",
    "show_qless_server",
]

QLESS_STATES = ("running", "stalled", "scheduled", "depends")


def _shape(value: Any, *left_out: str) -> Any:
    """Convert a value of another wire to JSON; what JSON cannot represent becomes text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _shape(getattr(value, each.name)) for each in fields(value) if each.name not in left_out}
    if isinstance(value, Mapping):
        return {str(name): _shape(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shape(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    value = plain(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


async def list_chasqui(request: Request) -> Json:
    """Count the jobs of ChasquiMQ's queues that are served."""
    found = await request.service.dialects.chasqui_counts()
    return Json({"queues": [{"name": name, **_shape(counts)} for name, counts in found]})


async def show_chasqui(request: Request) -> Json:
    """Count a ChasquiMQ queue's jobs."""
    name = request.params["name"]
    return Json({"name": name, **_shape(await request.service.dialects.chasqui_queue(name).counts())})


async def list_chasqui_jobs(request: Request) -> Json:
    """List a ChasquiMQ queue's jobs: ready or running, the oldest first, and delayed ones."""
    queue = request.service.dialects.chasqui_queue(request.params["name"])
    limit = whole(request, "limit", 100, most=1000)
    jobs, delayed = await asyncio.gather(queue.list_jobs(limit), queue.list_delayed(limit))
    later = [{"due_at": plain(at), **_shape(job, "is_new")} for at, job in delayed]
    return Json({"jobs": [_shape(job, "is_new") for job in jobs], "delayed": later})


async def list_chasqui_letters(request: Request) -> Json:
    """List a ChasquiMQ queue's dead letters, oldest first; ``after`` is the id to continue from."""
    queue = request.service.dialects.chasqui_queue(request.params["name"])
    limit = whole(request, "limit", 100, most=1000)
    found = await queue.dead_letters(limit, after=request.query.get("after") or None)
    return Json({"dead_letters": [_shape(letter, "envelope") for letter in found]})


async def replay_chasqui_letters(request: Request) -> Json:
    """Make dead jobs ready again, oldest first: those of ``ids``, of a ``reason``, ``limit`` of them, or all."""
    body = members(request, "ids", "reason", "limit")
    queue = request.service.dialects.chasqui_queue(request.params["name"])
    ids = body.get("ids")
    request.subject = ", ".join(map(str, ids))[:500] if isinstance(ids, list) else ""
    done = await queue.replay_dead_letters(body.get("limit"), ids=ids, reason=body.get("reason"))
    return Json({"replayed": done})


async def drop_chasqui_letters(request: Request) -> Json:
    """Remove all dead letters of a ChasquiMQ queue."""
    queue = request.service.dialects.chasqui_queue(request.params["name"])
    return Json({"dropped": await queue.purge_dead_letters()})


async def list_chasqui_schedules(request: Request) -> Json:
    """List a ChasquiMQ queue's repeatable jobs, by their next run."""
    queue = request.service.dialects.chasqui_queue(request.params["name"])
    found = await queue.schedules(whole(request, "limit", 100, most=1000))
    return Json(
        {
            "schedules": [
                {
                    "key": each.key,
                    "name": None if each.spec is None else each.spec.job_name,
                    "next_at": plain(each.next_at),
                    "fired": each.fired,
                }
                for each in found
            ]
        }
    )


async def pause_chasqui(request: Request) -> Json:
    """Pause a ChasquiMQ queue; workers of chasquimq 1.3.0 ignore it."""
    await request.service.dialects.chasqui_queue(request.params["name"]).pause()
    return Json({"is_paused": True})


async def resume_chasqui(request: Request) -> Json:
    """Resume a paused ChasquiMQ queue."""
    await request.service.dialects.chasqui_queue(request.params["name"]).resume()
    return Json({"is_paused": False})


async def show_qless_server(request: Request) -> Json:
    """Count the jobs of qless's queues that are served, and all failures by group, workers and tracked jobs."""
    found = await request.service.dialects.qless_overview()
    return Json(
        {
            "queues": [_shape(each) for each in found.queues],
            "failures": dict(found.failures),
            "workers": [_shape(each) for each in found.workers],
            "tracked": [_shape(job, "encoded") for job in found.tracked],
        }
    )


async def show_qless(request: Request) -> Json:
    """Count a qless queue's jobs by state."""
    name = request.params["name"]
    return Json(_shape(await request.service.dialects.qless_client(name).counts(name)))


async def qless_jobs(service: Service, name: str, state: str, limit: int, offset: int = 0) -> list[QlessJob]:
    """Return a page of a qless queue's jobs; ``waiting`` are those that would be taken next.

    Raises:
        UsageError: The state is unknown.
    """
    client = service.dialects.qless_client(name)
    if state == "waiting":
        return (await client.peek(name, limit + offset))[offset:]
    for known in QLESS_STATES:
        if known == state:
            return await client.get_many(await client.jobs(name, known, offset, limit))  # type: ignore[arg-type]
    raise UsageError(f"`state` must be one of waiting, {', '.join(QLESS_STATES)}, got {state[:80]!r}.")


async def list_qless_jobs(request: Request) -> Json:
    """List a qless queue's jobs of a ``state``; default those that would be taken next."""
    limit, offset = page_of(request)
    state = request.query.get("state") or "waiting"
    found = await qless_jobs(request.service, request.params["name"], state, limit, offset)
    return Json({"jobs": [_shape(job, "encoded") for job in found]})


async def pause_qless(request: Request) -> Json:
    """Pause a qless queue."""
    name = request.params["name"]
    await request.service.dialects.qless_client(name).pause(name)
    return Json({"is_paused": True})


async def resume_qless(request: Request) -> Json:
    """Resume a paused qless queue."""
    name = request.params["name"]
    await request.service.dialects.qless_client(name).unpause(name)
    return Json({"is_paused": False})
