"""Own routes of whole queues: settings, fair shares, statistics, workers, and the pools that queues share."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from typing import Any, cast

from orchestration_queue.client import AsyncPools, AsyncQueue, Pool, WorkerReply
from orchestration_queue.errors import NotFoundError, UsageError
from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.reading import members, plain, seconds_of, text, whole
from orchestration_queue.options import QueueSettings
from orchestration_queue.protocol.operations.worker_signals import WorkerVerb
from orchestration_queue.protocol.record import when
from orchestration_queue.protocol.statistics import DayStatistics, Distribution, TaskStatistics

__all__ = [
    "KEPT_DAYS",
    "change_settings",
    "control_workers",
    "list_pools",
    "list_shares",
    "list_workers",
    "parse_day",
    "pools_to_change",
    "read_pools",
    "remove_pool",
    "set_pool",
    "set_share",
    "show_pool",
    "show_settings",
    "show_statistics",
    "stop_workers",
    "unset_share",
]


async def _settings(queue: AsyncQueue) -> dict[str, Any]:
    settings, is_paused = await asyncio.gather(queue.settings(), queue.is_paused())
    return {**plain(settings), "is_paused": is_paused}


async def show_settings(request: Request) -> Json:
    """Return a queue's settings: defaults of its jobs, concurrency and rate limit over all workers."""
    return Json(await _settings(request.service.queue(request.params["name"])))


async def change_settings(request: Request) -> Json:
    """Change a queue's settings, and return all of them. Omitted ones are kept; null removes one."""
    changes, queue = members(request, *QueueSettings.model_fields), request.service.queue(request.params["name"])
    if isinstance(letters := changes.get("dead_letter_queue"), str):
        request.allow([queue.name, letters])
    await queue.configure(**changes)
    return Json(await _settings(queue))


async def list_shares(request: Request) -> Json:
    """List the shares that have a weight or waiting jobs, by name."""
    return Json({"shares": plain(await request.service.queue(request.params["name"]).shares.list())})


async def set_share(request: Request) -> Json:
    """Set the weight of a share, from its next job on."""
    name, body = request.params["share"], members(request, "weight")
    if "weight" not in body:
        raise UsageError('The body must have `weight`; pass {"weight": 3}, for example.')
    request.subject = name
    await request.service.queue(request.params["name"]).shares.set(name, body["weight"])
    return Json({"name": name, "weight": body["weight"]})


async def unset_share(request: Request) -> Json:
    """Reset the weight of a share to 1. Its jobs stay."""
    request.subject = name = request.params["share"]
    return Json({"removed": await request.service.queue(request.params["name"]).shares.remove(name)})


KEPT_DAYS = 30
"""Number of days that the server keeps."""


def parse_day(given: str | None) -> date | None:
    """Return a day of a query; None for today.

    Raises:
        UsageError: It is not a date.
    """
    try:
        return None if given is None else date.fromisoformat(given)
    except ValueError:
        raise UsageError(f"`day` must be a date in UTC such as 2026-01-31, got {given!r:.80}.") from None


async def show_statistics(request: Request) -> Json:
    """Return how long jobs waited and ran, and how many failed, by task, on ``day`` and ``days`` - 1 days before."""
    queue = request.service.queue(request.params["name"])
    days = whole(request, "days", 1, most=KEPT_DAYS)
    last = await queue.statistics(parse_day(text(request, "day")))
    try:
        before = [last.day - timedelta(days=back) for back in range(1, days)]
    except OverflowError:
        raise UsageError(f"`days` goes back before the calendar begins; pass fewer than {days}.") from None
    found = [last, *await asyncio.gather(*(queue.statistics(day) for day in before))]
    return Json({"days": [_day(each) for each in found]})


def _day(found: DayStatistics) -> dict[str, Any]:
    tasks = {name: _task(task) for name, task in found.tasks.items()}
    return {"day": found.day.isoformat(), "all": _task(found.all), "tasks": tasks}


def _task(task: TaskStatistics) -> dict[str, Any]:
    counts = {"completed": task.completed, "failed": task.failed, "retried": task.retried, "steps": task.steps}
    return counts | {"kinds": dict(task.kinds), "wait": _spread(task.wait), "run": _spread(task.run)}


def _spread(spread: Distribution) -> dict[str, Any]:
    named = {name: plain(getattr(spread, name)) for name in ("mean", "deviation", "p50", "p90", "p95", "p99")}
    histogram = [{"until": plain(until), "count": count} for until, count in spread.histogram]
    return {"count": spread.count, **named, "histogram": histogram}


_VERBS = ("ping", "pause", "resume", "concurrency")
_LONGEST_TIMEOUT_S = 20
_LONGEST_SUBJECT = 500


async def list_workers(request: Request) -> Json:
    """List the workers that are alive: their jobs, tasks, slots, memory and version."""
    return Json({"workers": plain(await request.service.queue(request.params["name"]).workers())})


async def control_workers(request: Request) -> Json:
    """Send workers ``ping``, ``pause``, ``resume`` or ``concurrency``; return their replies."""
    verb = request.params["verb"]
    if verb not in _VERBS:
        raise UsageError(f"The command must be one of {', '.join(_VERBS)} or stop, got {verb!r}.")
    return await _send_command(request, cast(WorkerVerb, verb), "workers", "concurrency", "timeout")


async def stop_workers(request: Request) -> Json:
    """Stop workers after their running jobs, as SIGTERM does."""
    return await _send_command(request, "stop", "workers", "timeout")


async def _send_command(request: Request, verb: WorkerVerb, *known: str) -> Json:
    body = members(request, *known)
    named = body.get("workers")
    request.subject = ", ".join(map(str, named))[:_LONGEST_SUBJECT] if isinstance(named, list) else "all"
    queue = await request.service.waiting_queue(request.params["name"])
    replies = await queue.control_workers(
        verb,
        named,
        concurrency=body.get("concurrency"),
        timeout=seconds_of(body, "timeout", 2, most=_LONGEST_TIMEOUT_S),
    )
    return Json({"replies": [_reply_shape(reply) for reply in replies]})


def _reply_shape(reply: WorkerReply) -> dict[str, Any]:
    return {**plain(reply), "has_obeyed": reply.has_obeyed}


def _pools(service: Service) -> AsyncPools:
    return AsyncPools(connection=service.connection, prefix=service.prefix)


async def read_pools(service: Service) -> list[Pool]:
    """Return all pools."""
    return await _pools(service).list()


def pools_to_change(service: Service) -> AsyncPools:
    """Return the pools for a change, which affects the jobs of all queues.

    Raises:
        HttpError: This app serves only some queues.
    """
    if service.allowed is not None:
        raise HttpError(403, "Pools are shared by all queues, and this app serves only some; use `oq pool`.")
    return _pools(service)


def _pool_shape(service: Service, pool: Pool) -> dict[str, Any]:
    """Return a pool with those holders whose queues are served."""
    holders = [
        {"queue": each.queue, "id": each.job_id, "slots": each.slots, "until": plain(when(each.until_ms))}
        for each in pool.holders
        if service.allowed is None or each.queue in service.allowed
    ]
    return {"name": pool.name, "slots": pool.slots, "used": pool.used, "waiting": pool.waiting, "holders": holders}


async def list_pools(request: Request) -> Json:
    """List all pools: slots, the jobs that hold them, and the number of waiting jobs."""
    service = request.service
    return Json({"pools": [_pool_shape(service, pool) for pool in await read_pools(service)]})


async def show_pool(request: Request) -> Json:
    """Return a pool with the jobs that hold its slots."""
    name = request.params["pool"]
    pool = await _pools(request.service).find(name)
    if pool is None:
        raise NotFoundError(f"Pool {name!r} is not defined; PUT it with `slots` to define it.")
    return Json(_pool_shape(request.service, pool))


async def set_pool(request: Request) -> Json:
    """Define a pool, or change its number of slots. Waiting jobs start if slots become free."""
    name, body = request.params["pool"], members(request, "slots")
    if "slots" not in body:
        raise UsageError('The body must have `slots`; pass {"slots": 8}, for example.')
    request.subject = name
    await pools_to_change(request.service).set(name, body["slots"])
    return await show_pool(request)


async def remove_pool(request: Request) -> Json:
    """Remove a pool that no job holds or waits for. Jobs that name it later fail."""
    request.subject = name = request.params["pool"]
    return Json({"removed": await pools_to_change(request.service).remove(name)})
