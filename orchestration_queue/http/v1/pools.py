"""Own routes of pools: slots that jobs of all queues share."""

from __future__ import annotations

from typing import Any

from orchestration_queue.client import AsyncPools, Pool
from orchestration_queue.errors import NotFoundError, UsageError
from orchestration_queue.http.messages import HttpError, Json, Request
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.reading import members, plain
from orchestration_queue.protocol.record import when

__all__ = ["list_pools", "pools_to_change", "read_pools", "remove_pool", "set_pool", "show_pool"]


def _pools(service: Service) -> AsyncPools:
    return AsyncPools(connection=service.connection, prefix=service.prefix)


async def read_pools(service: Service) -> list[Pool]:
    """Return all pools."""
    return await _pools(service).list()


def pools_to_change(service: Service) -> AsyncPools:
    """Return the pools for a change, which concerns the jobs of all queues.

    Raises:
        HttpError: This app serves some queues only.
    """
    if service.allowed is not None:
        raise HttpError(403, "Pools are shared by all queues, and this app serves only some; use `oq pool`.")
    return _pools(service)


def _shape(service: Service, pool: Pool) -> dict[str, Any]:
    """Return a pool with those holders whose queues are served."""
    holders = [
        {"queue": each.queue, "id": each.job_id, "slots": each.slots, "until": plain(when(each.until_ms))}
        for each in pool.holders
        if service.allowed is None or each.queue in service.allowed
    ]
    return {"name": pool.name, "slots": pool.slots, "used": pool.used, "waiting": pool.waiting, "holders": holders}


async def list_pools(request: Request) -> Json:
    """List all pools: slots, the jobs that hold some, and how many wait for some."""
    service = request.service
    return Json({"pools": [_shape(service, pool) for pool in await read_pools(service)]})


async def show_pool(request: Request) -> Json:
    """Return a pool with the jobs that hold its slots."""
    name = request.params["pool"]
    pool = await _pools(request.service).find(name)
    if pool is None:
        raise NotFoundError(f"Pool {name!r} is not defined; PUT it with `slots` to define it.")
    return Json(_shape(request.service, pool))


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
