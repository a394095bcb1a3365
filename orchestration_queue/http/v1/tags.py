"""Own routes of tags: jobs that are found, retried, cancelled and removed together."""

from __future__ import annotations

from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import destination, job_shape, members, page_of, plain
from orchestration_queue.options.checks import checked_tags

__all__ = ["cancel_tagged", "list_tagged", "list_tags", "move_tagged", "remove_tagged", "retry_tagged", "tag_job"]


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
    """Move the jobs with a tag to another queue; return why each other one was not moved."""
    to, delay = destination(request)
    done = await request.service.queue(request.params["name"]).tags.move(request.params["tag"], to, delay=delay)
    return Json({"moved": len(done.moved), "left": plain(done.left)})


async def remove_tagged(request: Request) -> Json:
    """Remove the jobs with a tag in all states."""
    return Json({"removed": await request.service.queue(request.params["name"]).tags.remove(request.params["tag"])})


async def tag_job(request: Request) -> Json:
    """Add and remove tags of a job; return its tags."""
    body = members(request, "add", "remove")
    added, removed = checked_tags(body.get("add", ())), checked_tags(body.get("remove", ()))
    job = await request.service.queue(request.params["name"]).get(request.params["id"])
    if removed:
        await job.untag(*removed)
    if added:
        await job.tag(*added)
    return Json({"id": job.id, "tags": list(job.tags)})
