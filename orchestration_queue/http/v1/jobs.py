"""Own routes of jobs, their tags and dead letters: search, change, explain, history, failures, replay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from orchestration_queue.client import AsyncJob
from orchestration_queue.client.checks import check_limit
from orchestration_queue.errors import DeadLetterNotFoundError, StateError, UsageError
from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.v1.reading import (
    data_filter,
    destination,
    job_shape,
    members,
    page_of,
    plain,
    text,
    time_of,
    whole,
)
from orchestration_queue.options.checks import check_tags

__all__ = [
    "MOST_CHANGED",
    "bounded",
    "cancel_tagged",
    "change_found",
    "change_job",
    "change_jobs",
    "drop_letter",
    "drop_letters",
    "explain_job",
    "job_history",
    "job_steps",
    "list_failures",
    "list_letters",
    "list_tagged",
    "list_tags",
    "move_found",
    "move_job",
    "move_tagged",
    "remove_found",
    "remove_tagged",
    "replay_letter",
    "replay_letters",
    "retry_failures",
    "retry_tagged",
    "search_jobs",
    "show_job",
    "show_letter",
    "tag_job",
]

_LONGEST_S = 20
"""Timeout of a search; finding a rare job in a queue of millions would take longer."""
_CRITERIA = ("name", "state", "data", "kind", "limit")
_LONGEST_SUBJECT = 500


async def search_jobs(request: Request) -> Json:
    """Find jobs by name, state, fields of their data, kind of failure and when they ended."""
    limit = whole(request, "limit", 100, most=MOST_CHANGED)
    name, state, data = text(request, "name"), text(request, "state"), data_filter(request.query.get("data"))
    queue = request.service.queue(request.params["name"])
    async with bounded(f"reads jobs until it has found {limit}; name a `state`, or pass a lower `limit`"):
        since, until = (time_of(request, word) for word in ("since", "until"))
        jobs = await queue.search(name, state, data, limit, text(request, "kind"), since, until)
    return Json({"jobs": [job_shape(job) for job in jobs]})


async def change_found(request: Request) -> Json:
    """Retry, cancel or promote up to 1,000 jobs that a search finds, if their state still allows it."""
    verb = request.params["verb"]
    if verb not in ("retry", "cancel", "promote"):
        raise UsageError(f"The action must be retry, cancel, promote or remove, got {verb[:80]!r}.")
    return await _change(request, verb)


async def remove_found(request: Request) -> Json:
    """Remove the jobs that a search finds, 1,000 at most."""
    return await _change(request, "remove")


async def move_found(request: Request) -> Json:
    """Move up to 1,000 jobs that a search finds to another queue; return why the others were not moved."""
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
            raise UsageError(f"`{name}` must be {what}, got {str(value)[:80]!r}; try it with GET .../search first.")
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
    """End a read that takes longer than a request may take.

    Args:
        advice: Why it takes long and what to do, as the end of a sentence.
    """
    try:
        async with asyncio.timeout(_LONGEST_S):
            yield
    except TimeoutError:
        raise HttpError(504, f"This took longer than {_LONGEST_S} s, because it {advice}") from None


async def show_job(request: Request) -> Json:
    """Return a job, with its history and its last traceback."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json(job_shape(job, in_full=True))


async def explain_job(request: Request) -> Json:
    """Explain a job's state, and what to do about it."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json(plain(await job.explain()))


async def job_history(request: Request) -> Json:
    """List a job's history without successes: failed attempts, takeovers, manual retries, cancellations."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json({"id": job.id, "attempts_made": job.record.attempts_made, "history": plain(job.history)})


async def job_steps(request: Request) -> Json:
    """List a job's durable steps in the order in which they were stored, without their results."""
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    return Json({"id": job.id, "steps": plain(await job.steps())})


MOST_CHANGED = 1000
"""Maximum jobs that one request changes."""
_AT_ONCE = 50


async def change_job(job: AsyncJob, verb: str, to: str = "") -> bool:
    """Retry, cancel, promote, move or remove a job, and return whether that changed anything.

    Args:
        job: The job, as it was read.
        verb: The action.
        to: For ``move``: the other queue.

    Raises:
        StateError: Its state does not allow it, or it is gone.
        UsageError: It cannot be moved to that queue.
    """
    match verb:
        case "remove":
            return await job.remove()
        case "retry":
            await job.retry()
        case "promote":
            await job.promote()
        case "move":
            await job.move(to)
        case "cancel" if job.record.is_finished:
            return False
        case "cancel":
            await job.cancel()
        case _:
            raise ValueError(verb)
    return True


async def change_jobs(jobs: Iterable[AsyncJob], verb: str, to: str = "") -> int:
    """Change many jobs, and return how many changed; those whose state no longer allows it are left alone."""
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def change(job: AsyncJob) -> bool:
        async with at_once:
            try:
                return await change_job(job, verb, to)
            except StateError:
                return False  # it is in another state, or gone

    return sum(await asyncio.gather(*map(change, jobs)))


async def list_tags(request: Request) -> Json:
    """List a queue's tags with their number of jobs, the most used first."""
    limit, offset = page_of(request)
    found = await request.service.queue(request.params["name"]).tags.list(limit=limit, offset=offset)
    return Json({"tags": plain(found)})


async def list_tagged(request: Request) -> Json:
    """List the jobs with a tag in all states, oldest first."""
    limit, offset = page_of(request)
    tags = request.service.queue(request.params["name"]).tags
    found = await tags.jobs(request.params["tag"], limit=limit, offset=offset)
    return Json({"jobs": [job_shape(job) for job in found]})


async def retry_tagged(request: Request) -> Json:
    """Retry the failed jobs with a tag."""
    return Json({"retried": await request.service.queue(request.params["name"]).tags.retry(request.params["tag"])})


async def cancel_tagged(request: Request) -> Json:
    """Cancel the unfinished jobs with a tag; running ones are stopped."""
    return Json({"cancelled": await request.service.queue(request.params["name"]).tags.cancel(request.params["tag"])})


async def move_tagged(request: Request) -> Json:
    """Move the jobs with a tag to another queue; return why the others were not moved."""
    to, delay = destination(request)
    done = await request.service.queue(request.params["name"]).tags.move(request.params["tag"], to, delay=delay)
    return Json({"moved": len(done.moved), "left": plain(done.left)})


async def remove_tagged(request: Request) -> Json:
    """Remove the jobs with a tag in all states."""
    return Json({"removed": await request.service.queue(request.params["name"]).tags.remove(request.params["tag"])})


async def tag_job(request: Request) -> Json:
    """Add and remove tags of a job; return its tags."""
    body = members(request, "add", "remove")
    added, removed = check_tags(body.get("add", ())), check_tags(body.get("remove", ()))
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    if removed:
        await job.untag(*removed)
    if added:
        await job.tag(*added)
    return Json({"id": job.id, "tags": list(job.tags)})


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
    limit = check_limit(members(request, "limit").get("limit"))
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
