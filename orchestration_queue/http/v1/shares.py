"""Own routes of fair shares: the part of a queue's starts that each tenant gets."""

from __future__ import annotations

from orchestration_queue.errors import UsageError
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import members, plain

__all__ = ["list_shares", "set_share", "unset_share"]


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
