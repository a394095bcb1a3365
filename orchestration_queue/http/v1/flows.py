"""Own routes of flows: list, status, tree, control. All queues of a flow must be allowed, since its nodes are shown."""

from __future__ import annotations

from orchestration_queue.client import AsyncFlow
from orchestration_queue.client.run_reading import MOST_RUNS
from orchestration_queue.errors import UsageError
from orchestration_queue.flows.stored import FlowState
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import members, plain, text, whole

__all__ = [
    "cancel_flow",
    "explain_flow",
    "list_flows",
    "list_runs",
    "pause_flow",
    "resume_flow",
    "retry_flow",
    "show_flow",
    "show_tree",
]


async def _flow(request: Request) -> AsyncFlow:
    queue = request.service.queue(request.params["name"])
    flow = await queue.flows.get(request.params["id"])
    request.allow({queue.name, *(job.keys.queue for job in flow.graph.jobs.values())})
    return flow


async def list_flows(request: Request) -> Json:
    """List a queue's flows, newest first; ``state`` filters each page."""
    limit = whole(request, "limit", 50, most=1000)
    offset = whole(request, "offset", 0, least=0, most=1_000_000)
    state = text(request, "state")
    if state is not None and state not in list(FlowState):
        raise UsageError(f"`state` must be one of {', '.join(FlowState)}, got {state!r}.")
    flows = request.service.queue(request.params["name"]).flows
    found = await flows.list(None if state is None else FlowState(state), limit=limit, offset=offset)
    return Json({"flows": plain(found)})


async def list_runs(request: Request) -> Json:
    """Lay the last runs of a flow, a scheduler or a Dagster job side by side, with what is different about each."""
    flows = request.service.queue(request.params["name"]).flows
    limit = whole(request, "limit", MOST_RUNS, most=MOST_RUNS)
    named = {name: text(request, name) for name in ("scheduler", "dagster_job")}
    found = await flows.runs(text(request, "flow"), **named, limit=limit)
    request.allow(found.queues)
    return Json(plain(found))


async def show_flow(request: Request) -> Json:
    """Return a flow's state, its nodes by state, and its critical path."""
    flow = await _flow(request)
    status, path = await flow.status(), await flow.critical_path()
    more = {"percent": status.percent, "seconds": status.seconds, "critical_path": [node.name for node in path]}
    return Json(plain(status) | more)


async def show_tree(request: Request) -> Json:
    """List a flow's nodes, dependencies first, with states and times."""
    flow = await _flow(request)
    return Json({"flow": flow.id, "nodes": plain(await flow.tree())})


async def explain_flow(request: Request) -> Json:
    """Explain a flow's state: the nodes that block it, or that failed."""
    return Json(plain(await (await _flow(request)).explain()))


async def cancel_flow(request: Request) -> Json:
    """Cancel all unfinished nodes of a flow; running ones are stopped."""
    reason = members(request, "reason").get("reason", "cancelled")
    if not isinstance(reason, str) or not reason:
        raise UsageError(
            f"`reason` must be a non-empty string, got {str(reason)[:80]!r}; leave it out for 'cancelled'."
        )
    flow = await _flow(request)
    return Json({"flow": flow.id, "nodes": await flow.cancel(reason)})


async def retry_flow(request: Request) -> Json:
    """Run the failed nodes of a flow again, and those that did not run because of them."""
    flow = await _flow(request)
    return Json({"flow": flow.id, "nodes": await flow.retry()})


async def pause_flow(request: Request) -> Json:
    """Pause a flow: no more nodes become ready."""
    flow = await _flow(request)
    await flow.pause()
    return Json({"flow": flow.id, "is_paused": True})


async def resume_flow(request: Request) -> Json:
    """Resume a paused flow."""
    flow = await _flow(request)
    await flow.resume()
    return Json({"flow": flow.id, "is_paused": False})
