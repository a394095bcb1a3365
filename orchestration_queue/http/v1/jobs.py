"""Own routes of jobs: search, failures by kind and reason, explanation, history."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestration_queue.client import AsyncJob, AsyncQueue
from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.v1.reading import data_filter, job_shape, plain, text, whole

__all__ = ["explain_job", "group_failures", "job_history", "list_failures", "newest_failed", "search_jobs"]

_SEARCH_S = 20
"""A rare job in a queue of millions takes longer; a request should not."""
_MOST_READ = 1000
_EXAMPLES = 3


async def search_jobs(request: Request) -> Json:
    """Find jobs by name, state and fields of their data."""
    limit = whole(request, "limit", 100, most=_MOST_READ)
    name, state, data = text(request, "name"), text(request, "state"), data_filter(request)
    queue = request.service.queue(request.params["name"])
    try:
        async with asyncio.timeout(_SEARCH_S):
            jobs = await queue.search(name, state, data, limit)
    except TimeoutError:
        sentence = f"The search found fewer than {limit} jobs in {_SEARCH_S} s; name a `state`, or pass a lower `limit`"
        raise HttpError(504, sentence) from None
    return Json({"jobs": [job_shape(job) for job in jobs]})


async def list_failures(request: Request) -> Json:
    """Group the newest failed jobs by name, kind and reason, the largest group first."""
    limit = whole(request, "limit", _MOST_READ, most=_MOST_READ)
    queue = request.service.queue(request.params["name"])
    failed, jobs = await newest_failed(queue, limit)
    return Json({"failed": failed, "read": len(jobs), "groups": group_failures(jobs)})


async def newest_failed(queue: AsyncQueue, limit: int) -> tuple[int, list[AsyncJob]]:
    """Return how many jobs have failed, and the newest of them, the newest first."""
    failed = (await queue.counts()).failed
    jobs = await queue.jobs("failed", limit=limit, offset=max(0, failed - limit))
    return failed, jobs[::-1]


def group_failures(jobs: list[AsyncJob]) -> list[dict[str, Any]]:
    """Return failed jobs grouped by name, kind and the first line of the reason; each group with its newest jobs."""
    groups: dict[tuple[str, str, str], list[AsyncJob]] = {}
    for job in jobs:
        record = job.record
        reason = (record.failed_reason or "").partition("\n")[0]
        groups.setdefault((record.name, str(record.failure_kind or ""), reason), []).append(job)
    return [
        {
            "name": name,
            "kind": kind,
            "reason": reason,
            "count": len(found),
            "newest_at": plain(found[0].record.finished_at),
            "oldest_at": plain(found[-1].record.finished_at),
            "examples": [job.id for job in found[:_EXAMPLES]],
        }
        for (name, kind, reason), found in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]


async def explain_job(request: Request) -> Json:
    """Explain why a job is where it is, and what would move it on."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json(plain(await job.explain()))


async def job_history(request: Request) -> Json:
    """List what happened to a job besides success: failed attempts, takeovers, retries by hand, cancels."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json({"id": job.id, "attempts_made": job.record.attempts_made, "history": plain(job.history)})
