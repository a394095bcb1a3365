"""Adding, reading and changing jobs: routes R1-R5, R11-R13 and R37-R39 of glide-mq's proxy."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from orchestration_queue.errors import JobFailedError, OrchestrationQueueError, UsageError
from orchestration_queue.http.job_options import addition, check_options, encode_data
from orchestration_queue.http.messages import (
    JOB_STATES,
    MISSING,
    HttpError,
    Json,
    Request,
    bounds,
    choice,
    flag,
    number_field,
    text_field,
)
from orchestration_queue.http.service import add_each
from orchestration_queue.http.shapes import job_shape, suspend_shape
from orchestration_queue.options import MAX_PRIORITY
from orchestration_queue.protocol.call import Operation, text
from orchestration_queue.protocol.operations import control
from orchestration_queue.protocol.operations.additions import Added, NewJob
from orchestration_queue.server.clock import now_ms

__all__ = [
    "add_and_wait",
    "add_bulk",
    "add_job",
    "cancel_job",
    "change_delay",
    "change_priority",
    "get_job",
    "get_suspension",
    "list_jobs",
    "promote_job",
    "signal_job",
]

# Both are those of glide-mq's proxy.
_MOST_JOBS = 1000
_WAIT_MS = 30_000
_NO_JOB = HttpError(404, "Job not found")


def _key_id(request: Request) -> str:
    """Return the job id made from the header ``Idempotency-Key``; empty without one."""
    key = request.headers.get("idempotency-key")
    return f"idem-{hashlib.sha256(key.encode()).hexdigest()[:32]}" if key else ""


def _read_job(request: Request, body: Any, where: str = "", key_id: str = "") -> NewJob:
    name = body.get("name") if isinstance(body, dict) else None
    if not isinstance(name, str) or not name:
        raise HttpError(400, f"{where}missing required field: name" if where else "Missing required field: name")
    options = check_options(body.get("opts"), where=where) if "opts" in body else {}
    if key_id and "jobId" not in options:
        options = options | {"jobId": key_id}
    return addition(name, encode_data(body.get("data"), request.service.codec), options)


async def add_job(request: Request) -> Json:
    """Add a job. The header ``Idempotency-Key`` makes repeating the request safe."""
    job = _read_job(request, request.fields, key_id=_key_id(request))
    at_ms = now_ms()
    added = await request.service.add(request.params["name"], job)
    if not added.is_new:
        return Json({"skipped": True})
    return Json({"id": added.job_id, "name": job.name, "timestamp": at_ms}, 201)


async def add_bulk(request: Request) -> Json:
    """Add up to 1,000 jobs; all are checked before the first is written.

    The header ``Idempotency-Key`` makes repeating the request safe.
    """
    given = request.fields.get("jobs")
    if not isinstance(given, list):
        raise HttpError(400, "Missing required field: jobs (array)")
    if len(given) > _MOST_JOBS:
        raise HttpError(400, f"Too many jobs (max {_MOST_JOBS})")
    key_id = _key_id(request)
    jobs = [
        _read_job(request, item, f"jobs[{place}]: ", key_id and f"{key_id}-{place}") for place, item in enumerate(given)
    ]
    keys = request.service.keys(request.params["name"])
    at_ms = now_ms()
    outcomes = await add_each(request.service.connection, keys, jobs)
    shapes: list[dict[str, Any]] = []
    for job, outcome in zip(jobs, outcomes, strict=True):
        if not isinstance(outcome, Added):
            raise outcome
        new = {"id": outcome.job_id, "name": job.name, "timestamp": at_ms}
        shapes.append(new if outcome.is_new else {"skipped": True})
    return Json({"jobs": shapes}, 201 if any("id" in shape for shape in shapes) else 200)


async def add_and_wait(request: Request) -> Json:
    """Add a job and wait for its result; ``opts.waitTimeout`` is the longest wait in ms, default 30,000.

    Repeated with the same header ``Idempotency-Key``, it waits for the job that the first request added.
    """
    name = text_field(request.fields, "name")
    options = check_options(request.fields.get("opts"), is_awaited=True)
    wait_ms = options.get("waitTimeout", _WAIT_MS)
    options = {key: value for key, value in options.items() if key != "waitTimeout"}
    if options.get("removeOnComplete") or options.get("removeOnFail"):
        why = "because it may need the job hash as a fallback."
        raise HttpError(400, f"Queue.addAndWait does not support removeOnComplete/removeOnFail {why}")
    key_id = "" if "jobId" in options else _key_id(request)
    options |= {"jobId": key_id} if key_id else {}
    job = addition(name, encode_data(request.fields.get("data"), request.service.codec), options)
    queue = request.service.queue(request.params["name"])
    added = await request.service.add(queue.name, job)
    # A request that is repeated with its key waits for the same job.
    if added.job_id is None or not (added.is_new or added.job_id == key_id):
        what = "a deduplicated/skipped/duplicate-ID add that returned null."
        raise HttpError(400, f"Queue.addAndWait() cannot wait on {what}")
    waiting = asyncio.ensure_future(_outcome(request, added.job_id, wait_ms))
    gone = asyncio.ensure_future(request.gone()) if request.gone else None
    try:
        await asyncio.wait([waiting, *([gone] if gone else [])], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise HttpError(499, "The client has disconnected")
        return Json({"result": waiting.result()})
    finally:
        waiting.cancel()
        if gone:
            gone.cancel()


async def _outcome(request: Request, job_id: str, wait_ms: float) -> Any:
    queue = request.service.queue(request.params["name"])
    try:
        return await (await queue.get(job_id)).wait(wait_ms / 1000)
    except TimeoutError:
        raise HttpError(504, f"Job {job_id} did not finish within {wait_ms}ms") from None
    except JobFailedError as error:
        ended = error.reason in ("revoked", "expired")
        raise HttpError(500, f"Job {job_id} ended with event '{error.reason}'" if ended else error.reason) from None
    except OrchestrationQueueError:
        if request.service.closing.is_set():
            raise HttpError(500, "Queue is closing") from None
        raise


async def list_jobs(request: Request) -> Json:
    """List the jobs in one state."""
    queue = request.service.queue(request.params["name"])
    state = choice(request.query, "state", JOB_STATES)
    offset, limit = bounds(request.query)
    with_data = not flag(request.query, "excludeData")
    jobs = await queue.jobs(state, limit=limit, offset=offset)
    return Json({"jobs": [job_shape(job.record, state=state, with_data=with_data) for job in jobs]})


async def get_job(request: Request) -> Json:
    """Return one job."""
    job = await request.service.queue(request.params["name"]).find(request.params["id"])
    if job is None:
        raise _NO_JOB
    return Json(job_shape(job.record))


async def change_priority(request: Request) -> Json:
    """Change the priority of a job that has not started."""
    priority = number_field(request.fields, "priority")
    keys = request.service.keys(request.params["name"])
    if priority != int(priority) or priority > MAX_PRIORITY:
        raise HttpError(400, f"Cannot change priority: it must be a whole number up to {MAX_PRIORITY}")
    await _edit(request, control.change_priority(keys, request.params["id"], int(priority)), "change priority")
    return Json({"priority": priority, "updated": True})


async def change_delay(request: Request) -> Json:
    """Make a job that has not started ready ``delay`` ms from now."""
    delay = number_field(request.fields, "delay")
    keys = request.service.keys(request.params["name"])
    await _edit(request, control.change_delay(keys, request.params["id"], int(delay), now_ms()), "change delay")
    return Json({"delay": delay, "updated": True})


async def promote_job(request: Request) -> Json:
    """Make a delayed job ready now."""
    keys = request.service.keys(request.params["name"])
    await _edit(request, control.promote_job(keys, request.params["id"]), "promote")
    return Json({"promoted": True})


async def _edit(request: Request, operation: Operation[None], verb: str) -> None:
    """Carry out a change; a refusal is answered with the wire's word."""
    word = text(await request.service.connection.execute(operation.call))
    if word == "error:not_found":
        raise _NO_JOB
    if word.startswith("error:"):
        raise HttpError(400, f"Cannot {verb}: {word.removeprefix('error:')}")


async def get_suspension(request: Request) -> Json:
    """Return why and since when a job is suspended."""
    info = await request.service.queue(request.params["name"]).suspend_info(request.params["id"])
    if info is None:
        raise HttpError(404, "Job is not suspended")
    return Json(suspend_shape(info))


async def signal_job(request: Request) -> Json:
    """Send a suspended job a signal and make it ready."""
    queue = request.service.queue(request.params["name"])
    name = text_field(request.fields, "name", " (string)")
    data = request.fields.get("data", MISSING)
    try:
        resumed = await queue.signal(request.params["id"], name, None if data is MISSING else data)
    except UsageError as error:
        raise HttpError(400, str(error)) from None
    return Json({"resumed": resumed})


async def cancel_job(request: Request) -> Json:
    """Cancel a job: it fails if it has not started; otherwise its worker stops it."""
    status = await request.service.queue(request.params["name"]).cancel(request.params["id"])
    return Json({"status": str(status)})
