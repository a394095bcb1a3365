"""Whole queues, what their jobs used, and the app's health: routes R6-R10, R17-R25, R30, R31, R36, R40-R42 and R45."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestration_queue.client import AsyncUsageLedger
from orchestration_queue.errors import DeadLetterNotFoundError, UsageError
from orchestration_queue.http.messages import (
    FINISHED,
    HttpError,
    Json,
    Request,
    bounds,
    choice,
    count_of,
    csv,
    flag,
    integer,
    is_number,
    required_integer,
)
from orchestration_queue.http.shapes import (
    budget_shape,
    dead_letter_shape,
    job_shape,
    suspend_shape,
    totals_shape,
    worker_shape,
)
from orchestration_queue.options import MAX_DURATION, RateLimit, milliseconds, plain_number
from orchestration_queue.options.base import MAX_COUNT
from orchestration_queue.server.clock import epoch_ms, now_ms
from orchestration_queue.states import JobState

__all__ = [
    "clean",
    "counts",
    "drain",
    "drop_dead_letter",
    "flow_budget",
    "flow_usage",
    "get_dead_letter",
    "get_rate_limit",
    "health",
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
    "usage_summary",
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
        raise HttpError(400, "end must be >= start when both are non-negative")  # glide-mq's sentence
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


_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_KEPT_MS = 30 * 24 * _HOUR_MS
# As in glide-mq's proxy.
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
    """Report that the app runs, without a request to the server."""
    service = request.service
    queues = 0 if service.closing.is_set() else service.used_queues
    return Json({"queues": queues, "status": "ok", "uptime": service.uptime_ms})
