"""Whole queues: pause, counts, metrics, workers, cleaning, limits, dead letters; routes R6-R10, R17-R25 and R40-R42."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from orchestration_queue.errors import DeadLetterNotFoundError
from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.parameters import (
    FINISHED,
    bounds,
    choice,
    count_of,
    flag,
    integer,
    is_number,
    required_integer,
)
from orchestration_queue.http.shapes import dead_letter_shape, job_shape, suspend_shape, worker_shape
from orchestration_queue.options import MAX_DURATION, RateLimit, milliseconds, plain_number
from orchestration_queue.options.base import MAX_COUNT
from orchestration_queue.server.clock import epoch_ms, now_ms
from orchestration_queue.states import JobState

__all__ = [
    "clean",
    "counts",
    "drain",
    "drop_dead_letter",
    "get_dead_letter",
    "get_rate_limit",
    "list_dead_letters",
    "list_suspended",
    "list_workers",
    "metrics",
    "pause",
    "remove_rate_limit",
    "replay_all",
    "replay_dead_letter",
    "resume",
    "retry",
    "set_rate_limit",
]

_NO_LETTER = HttpError(404, "DLQ job not found")


async def pause(request: Request) -> Json:
    """Pause a queue: its workers take no jobs."""
    await request.service.queue(request.params["name"]).pause()
    return Json({"paused": True})


async def resume(request: Request) -> Json:
    """Resume a paused queue."""
    await request.service.queue(request.params["name"]).resume()
    return Json({"paused": False})


async def counts(request: Request) -> Json:
    """Count the jobs by state."""
    found = asdict(await request.service.queue(request.params["name"]).counts())
    return Json({state: found[state] for state in ("waiting", "active", "delayed", "completed", "failed")})


async def metrics(request: Request) -> Json:
    """Return how many jobs ended in each minute."""
    queue = request.service.queue(request.params["name"])
    kind = choice(request.query, "type", FINISHED)
    start, end = integer(request.query, "start") or 0, integer(request.query, "end")
    end = -1 if end is None else end
    if start >= 0 and end >= 0 and end < start:
        raise HttpError(400, "end must be >= start when both are non-negative")
    found = await queue.metrics(kind)
    points = [
        {"timestamp": epoch_ms(minute.at), "count": minute.count, "avgDuration": milliseconds(minute.mean_duration)}
        for minute in found.minutes
    ]
    page = points[start : None if end == -1 else end + 1]
    return Json({"count": found.kept, "data": page, "meta": {"resolution": "minute"}})


async def list_workers(request: Request) -> Json:
    """List the workers that are alive."""
    workers = await request.service.queue(request.params["name"]).workers()
    at_ms = now_ms()
    return Json({"workers": [worker_shape(worker, at_ms) for worker in workers]})


async def list_suspended(request: Request) -> Json:
    """List the suspended jobs, by deadline."""
    queue = request.service.queue(request.params["name"])
    offset, limit = bounds(request.query)
    with_data = not flag(request.query, "excludeData")
    shapes = []
    for job in await queue.jobs(JobState.SUSPENDED, limit=limit, offset=offset):
        if info := await queue.suspend_info(job.id):
            shape = job_shape(job.record, state="suspended", with_data=with_data)
            shapes.append(shape | {"suspend": suspend_shape(info)})
    return Json({"jobs": shapes})


async def drain(request: Request) -> Json:
    """Remove all waiting jobs, and with ``delayed`` those that are due later."""
    delayed = flag(request.query, "delayed")
    await request.service.queue(request.params["name"]).drain(delayed=delayed)
    return Json({"delayed": delayed, "drained": True})


async def retry(request: Request) -> Json:
    """Retry failed jobs with all their attempts; ``count`` 0 means all."""
    count = count_of(request.fields, request.query, 0)
    retried = await request.service.queue(request.params["name"]).retry_jobs(count or None)
    return Json({"retried": retried})


async def clean(request: Request) -> Json:
    """Remove jobs that finished more than ``age`` seconds ago."""
    state = choice(request.query, "state", FINISHED)
    age = required_integer(request.query, "age", 0)
    limit = integer(request.query, "limit", 1)
    queue = request.service.queue(request.params["name"])
    try:
        grace = timedelta(seconds=age)
    except OverflowError:
        return Json({"removed": []})
    return Json({"removed": await queue.clean(grace, 1000 if limit is None else limit, state)})


def _limit_shape(limit: RateLimit) -> dict[str, Any]:
    return {"max": limit.max, "duration": milliseconds(limit.duration)}


async def get_rate_limit(request: Request) -> Json:
    """Return how many jobs may start in each window, over all workers."""
    limit = await request.service.queue(request.params["name"]).global_rate_limit()
    return Json({"rateLimit": None if limit is None else _limit_shape(limit)})


async def set_rate_limit(request: Request) -> Json:
    """Set how many jobs (``max``) may start in each window (``duration`` in ms), over all workers."""
    most: object = request.fields.get("max")
    duration: object = request.fields.get("duration")
    if not (is_number(most) and is_number(duration) and most > 0 and duration > 0):
        raise HttpError(400, "Body must include positive numeric fields: max, duration")
    queue = request.service.queue(request.params["name"])
    window_ms = min(max(1, int(duration)), milliseconds(MAX_DURATION))
    limit = RateLimit(max=min(max(1, int(most)), MAX_COUNT), duration=timedelta(milliseconds=window_ms))
    await queue.set_global_rate_limit(limit)
    return Json({"rateLimit": {"duration": plain_number(duration), "max": plain_number(most)}})


async def remove_rate_limit(request: Request) -> Json:
    """Remove the rate limit."""
    await request.service.queue(request.params["name"]).set_global_rate_limit(None)
    return Json({"removed": True, "rateLimit": None})


async def list_dead_letters(request: Request) -> Json:
    """List the queue's dead letters, oldest first."""
    queue = request.service.queue(request.params["name"])
    offset, limit = bounds(request.query)
    letters = await queue.dead_letters.list(limit=limit, offset=offset)
    return Json({"count": len(letters), "jobs": [dead_letter_shape(letter) for letter in letters]})


async def get_dead_letter(request: Request) -> Json:
    """Return one dead letter."""
    letter = await request.service.queue(request.params["name"]).dead_letters.find(request.params["id"])
    if letter is None:
        raise _NO_LETTER
    return Json(dead_letter_shape(letter))


async def replay_dead_letter(request: Request) -> Json:
    """Run a dead job again, as a new job of its queue."""
    queue = request.service.queue(request.params["name"])
    try:
        job = await queue.dead_letters.replay(request.params["id"])
    except DeadLetterNotFoundError:
        raise _NO_LETTER from None
    return Json({"name": job.name, "newJobId": job.id})


async def replay_all(request: Request) -> Json:
    """Run dead jobs again, oldest first, ``count`` at most."""
    count = count_of(request.fields, request.query, 1)
    queue = request.service.queue(request.params["name"])
    shapes = []
    for letter in await queue.dead_letters.list(limit=count):
        try:
            job = await queue.dead_letters.replay(letter.id)
        except DeadLetterNotFoundError:
            continue  # another client was first
        shapes.append({"id": job.id, "name": job.name, "sourceId": letter.id})
    return Json({"jobs": shapes, "replayed": len(shapes)})


async def drop_dead_letter(request: Request) -> Json:
    """Remove a dead letter."""
    if not await request.service.queue(request.params["name"]).dead_letters.remove(request.params["id"]):
        raise _NO_LETTER
    return Json({"removed": True})
