"""Own routes of tags: jobs that are found, retried, cancelled and removed together."""

from __future__ import annotations

from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import destination, job_shape, members, page_of, plain
from orchestration_queue.options.tags import checked_tags

__all__ = ["cancel_tagged", "list_tagged", "list_tags", "move_tagged", "remove_tagged", "retry_tagged", "tag_job"]


async def list_tags(request: Request) -> Json:
    """List a queue's tags with their number of jobs, the most used first."""
    limit, offset = page_of(request)
    found = await request.service.queue(request.params["name"]).tags.list(limit=limit, offset=offset)
    return Json({"tags": plain(found)})


async def list_tagged(request: Request) -> Json:
    """List the jobs of a tag in whatever state, oldest first."""
    limit, offset = page_of(request)
    tags = request.service.queue(request.params["name"]).tags
    found = await tags.jobs(request.params["tag"], limit=limit, offset=offset)
    return Json({"jobs": [job_shape(job) for job in found]})


async def retry_tagged(request: Request) -> Json:
    """Retry the failed jobs of a tag."""
    return Json({"retried": await request.service.queue(request.params["name"]).tags.retry(request.params["tag"])})


async def cancel_tagged(request: Request) -> Json:
    """Cancel the unfinished jobs of a tag; running ones are stopped."""
    return Json({"cancelled": await request.service.queue(request.params["name"]).tags.cancel(request.params["tag"])})


async def move_tagged(request: Request) -> Json:
    """Move the jobs of a tag to another queue; says why each that is left could not."""
    to, delay = destination(request)
    done = await request.service.queue(request.params["name"]).tags.move(request.params["tag"], to, delay=delay)
    return Json({"moved": len(done.moved), "left": plain(done.left)})


async def remove_tagged(request: Request) -> Json:
    """Remove the jobs of a tag in whatever state."""
    return Json({"removed": await request.service.queue(request.params["name"]).tags.remove(request.params["tag"])})


async def tag_job(request: Request) -> Json:
    """Add tags to a job and take others off; returns its tags."""
    body = members(request, "add", "remove")
    added, removed = checked_tags(body.get("add", ())), checked_tags(body.get("remove", ()))
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    if removed:
        await job.untag(*removed)
    if added:
        await job.tag(*added)
    return Json({"id": job.id, "tags": list(job.tags)})
