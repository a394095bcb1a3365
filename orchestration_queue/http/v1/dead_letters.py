"""Own routes of dead letters: list, read, replay, drop."""

from __future__ import annotations

from orchestration_queue.client.checks import checked_limit
from orchestration_queue.errors import DeadLetterNotFoundError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import job_shape, members, page_of, plain

__all__ = ["drop_letter", "drop_letters", "list_letters", "replay_letter", "replay_letters", "show_letter"]


async def list_letters(request: Request) -> Json:
    """List a queue's dead letters, oldest first."""
    limit, offset = page_of(request)
    letters = request.service.queue(request.params["name"]).dead_letters
    return Json({"dead_letters": plain(await letters.list(limit=limit, offset=offset))})


async def show_letter(request: Request) -> Json:
    """Return a dead letter with the failure's kind and traceback."""
    return Json(plain(await request.service.queue(request.params["name"]).dead_letters.get(request.params["id"])))


async def replay_letter(request: Request) -> Json:
    """Run a dead job again, as a new job with all its attempts."""
    job = await request.service.queue(request.params["name"]).dead_letters.replay(request.params["id"])
    return Json({"is_new": job.is_new, "job": job_shape(job)}, 201)


async def replay_letters(request: Request) -> Json:
    """Run dead jobs again, oldest first: ``limit`` of them, or all."""
    limit = checked_limit(members(request, "limit").get("limit"))
    return Json({"replayed": await request.service.queue(request.params["name"]).dead_letters.replay_all(limit)})


async def drop_letter(request: Request) -> Json:
    """Remove a dead letter."""
    queue = request.service.queue(request.params["name"])
    if not await queue.dead_letters.remove(request.params["id"]):
        raise DeadLetterNotFoundError(queue.name, request.params["id"])
    return Json({"dropped": 1})


async def drop_letters(request: Request) -> Json:
    """Remove all dead letters of a queue."""
    return Json({"dropped": await request.service.queue(request.params["name"]).dead_letters.purge()})
