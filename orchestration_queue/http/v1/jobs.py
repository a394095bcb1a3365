"""Own routes of jobs: search, failures by kind and reason, explanation, history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.v1.reading import data_filter, job_shape, members, plain, text, whole

__all__ = ["explain_job", "job_history", "list_failures", "retry_failures", "search_jobs"]

_LONGEST_S = 20
"""A rare job in a queue of millions takes longer; a request should not."""
_MOST_READ = 1000


async def search_jobs(request: Request) -> Json:
    """Find jobs by name, state, fields of their data and kind of failure."""
    limit = whole(request, "limit", 100, most=_MOST_READ)
    name, state, data = text(request, "name"), text(request, "state"), data_filter(request)
    queue = request.service.queue(request.params["name"])
    async with _bounded(f"reads jobs until it has found {limit}; name a `state`, or pass a lower `limit`"):
        jobs = await queue.search(name, state, data, limit, text(request, "kind"))
    return Json({"jobs": [job_shape(job) for job in jobs]})


async def list_failures(request: Request) -> Json:
    """Group a queue's failed jobs by kind of failure, the most frequent first."""
    async with _bounded("reads all failed jobs; remove old ones"):
        return Json({"failures": plain(await request.service.queue(request.params["name"]).failures())})


async def retry_failures(request: Request) -> Json:
    """Retry failed jobs, oldest first: all, those of one ``kind``, or ``limit`` of them."""
    body = members(request, "kind", "limit")
    queue = request.service.queue(request.params["name"])
    return Json({"retried": await queue.retry_jobs(body.get("limit"), body.get("kind"))})


@asynccontextmanager
async def _bounded(advice: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_LONGEST_S):
            yield
    except TimeoutError:
        raise HttpError(504, f"This took longer than {_LONGEST_S} s, because it {advice}") from None


async def explain_job(request: Request) -> Json:
    """Explain why a job is where it is, and what would move it on."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json(plain(await job.explain()))


async def job_history(request: Request) -> Json:
    """List what happened to a job besides success: failed attempts, takeovers, retries by hand, cancels."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json({"id": job.id, "attempts_made": job.record.attempts_made, "history": plain(job.history)})
