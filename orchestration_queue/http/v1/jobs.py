"""Own routes of jobs: search, failures by kind and reason, explanation, history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestration_queue.client import AsyncJob
from orchestration_queue.errors import UsageError
from orchestration_queue.http.changes import MOST_CHANGED, change_jobs
from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.v1.reading import data_filter, destination, job_shape, members, plain, text, whole

__all__ = [
    "bounded",
    "change_found",
    "explain_job",
    "job_history",
    "list_failures",
    "move_found",
    "move_job",
    "remove_found",
    "retry_failures",
    "search_jobs",
]

_LONGEST_S = 20
"""A rare job in a queue of millions takes longer; a request should not."""
_CRITERIA = ("name", "state", "data", "kind", "limit")
_LONGEST_SUBJECT = 500


async def search_jobs(request: Request) -> Json:
    """Find jobs by name, state, fields of their data and kind of failure."""
    limit = whole(request, "limit", 100, most=MOST_CHANGED)
    name, state, data = text(request, "name"), text(request, "state"), data_filter(request.query.get("data"))
    queue = request.service.queue(request.params["name"])
    async with bounded(f"reads jobs until it has found {limit}; name a `state`, or pass a lower `limit`"):
        jobs = await queue.search(name, state, data, limit, text(request, "kind"))
    return Json({"jobs": [job_shape(job) for job in jobs]})


async def change_found(request: Request) -> Json:
    """Retry, cancel or promote up to 1,000 jobs that a search finds, if their state still allows it."""
    verb = request.params["verb"]
    if verb not in ("retry", "cancel", "promote"):
        raise UsageError(f"The action must be retry, cancel, promote or remove; got {verb[:80]!r}.")
    return await _change(request, verb)


async def remove_found(request: Request) -> Json:
    """Remove the jobs that a search finds, 1,000 at most."""
    return await _change(request, "remove")


async def move_found(request: Request) -> Json:
    """Move up to 1,000 jobs that a search finds to another queue; return why each other one was not moved."""
    to, delay = destination(request, *_CRITERIA)
    found = await _sought(request, "to", "delay")
    queue = request.service.queue(request.params["name"])
    done = await queue.move_jobs([job.id for job in found], to, delay=delay)
    return Json({"found": len(found), "moved": len(done.moved), "left": plain(done.left)})


async def move_job(request: Request) -> Json:
    """Move a job that is not running to another queue; return the moved job."""
    to, delay = destination(request)
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json(job_shape(await job.move(to, delay=delay)))


async def _sought(request: Request, *more: str) -> list[AsyncJob]:
    """Return the jobs that the body describes."""
    body = members(request, *_CRITERIA, *more)
    wanted = {name: body[name] for name in _CRITERIA if name != "limit" and body.get(name) is not None}
    limit = body.get("limit", MOST_CHANGED)
    if not wanted:
        raise UsageError("No jobs are selected; pass a `name`, `state`, `data` or `kind`.")
    for name, value in wanted.items():
        if not isinstance(value, dict if name == "data" else str):
            what = "an object" if name == "data" else "text"
            raise UsageError(
                f"`{name}` must be {what}, got {str(value)[:80]!r}; GET .../search finds what it would be."
            )
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_CHANGED:
        raise UsageError(f"`limit` must be a whole number from 1 to {MOST_CHANGED}, got {str(limit)[:80]!r}.")
    request.subject = json.dumps(wanted, ensure_ascii=False)[:_LONGEST_SUBJECT]
    queue = request.service.queue(request.params["name"])
    async with bounded(f"reads jobs until it has found {limit}; name a `state`, or pass a lower `limit`"):
        return await queue.search(**wanted, limit=limit)


async def _change(request: Request, verb: str) -> Json:
    found = await _sought(request)
    return Json({"found": len(found), "changed": await change_jobs(found, verb)})


async def list_failures(request: Request) -> Json:
    """Group a queue's failed jobs by kind of failure, the most frequent first."""
    async with bounded("reads all failed jobs; remove old ones"):
        return Json({"failures": plain(await request.service.queue(request.params["name"]).failures())})


async def retry_failures(request: Request) -> Json:
    """Retry failed jobs, oldest first: all, those of one ``kind``, or ``limit`` of them."""
    body = members(request, "kind", "limit")
    queue = request.service.queue(request.params["name"])
    return Json({"retried": await queue.retry_jobs(body.get("limit"), body.get("kind"))})


@asynccontextmanager
async def bounded(advice: str) -> AsyncIterator[None]:
    """End a read that takes longer than a request may.

    Args:
        advice: Why it takes long and what to do, as the rest of a sentence.
    """
    try:
        async with asyncio.timeout(_LONGEST_S):
            yield
    except TimeoutError:
        raise HttpError(504, f"This took longer than {_LONGEST_S} s, because it {advice}") from None


async def explain_job(request: Request) -> Json:
    """Explain a job's state, and what to do about it."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json(plain(await job.explain()))


async def job_history(request: Request) -> Json:
    """List a job's history without successes: failed attempts, takeovers, manual retries, cancellations."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json({"id": job.id, "attempts_made": job.record.attempts_made, "history": plain(job.history)})
