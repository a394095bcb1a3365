"""Flows: routes R32-R35 of glide-mq's proxy.

A flow is submitted like any other flow of this package, so that no node starts before all exist. The record that
glide-mq's proxy keeps is written, too.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import (
    CycleError,
    DuplicateNodeError,
    JobNotFoundError,
    UnknownDependencyError,
    UsageError,
)
from orchestration_queue.flows import Dag, Node
from orchestration_queue.http.job_options import addition, check_own_options
from orchestration_queue.http.messages import HttpError, Json, Request, is_number
from orchestration_queue.http.service import Service
from orchestration_queue.http.shapes import budget_shape, job_shape, totals_shape
from orchestration_queue.options import Budget
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.operations.http_records import (
    ProxyFlow,
    name_proxy_flow,
    read_proxy_flow,
    remove_proxy_flow,
    write_proxy_flow,
)
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["cancel_flow", "get_flow", "get_tree", "submit_flow"]

_INTERNAL = HttpError(500, "Internal server error")
"""glide-mq hides mistakes in a graph; its clients expect that status."""
_NO_DATA = HttpError(400, 'The "string" argument must be of type string. Received undefined')
_DEEPEST = 100


@dataclass(slots=True)
class _Planned:
    """A node as the client wrote it, with its name in the graph."""

    name: str
    given: Mapping[str, Any]
    deps: list[str] = field(default_factory=list)


async def submit_flow(request: Request) -> Json:
    """Submit a tree (``flow``) or a graph (``dag``)."""
    tree, dag = request.fields.get("flow"), request.fields.get("dag")
    if (tree is None) == (dag is None):
        raise HttpError(400, "Body must include exactly one of: flow, dag")
    budget = request.fields.get("budget")
    if dag is not None and budget is not None:
        raise HttpError(400, "budget is currently supported only for tree flows")
    planned = _plan_tree(tree) if dag is None else _plan_dag(dag)
    service = request.service
    for node in planned:
        service.check_name(node.given.get("queueName"))
    for node in planned:
        service.check_allowed(node.given["queueName"])
    service.check_open()
    flow_id = secrets.token_hex(12)
    graph = _graph(planned)
    refs = [(QueueKeys(node.given["queueName"], service.prefix), f"{flow_id}.{node.name}") for node in planned]
    kind = "tree" if dag is None else "dag"
    roots = refs[:1] if kind == "tree" else [ref for ref, node in zip(refs, planned, strict=True) if not node.deps]
    known = refs[0][1] if kind == "tree" else flow_id
    record = ProxyFlow(known, kind, now_ms(), tuple(refs), tuple(roots))
    # Before its jobs, so that an error in between leaves none that cannot be cancelled.
    all_good(await service.connection.pipeline(write_proxy_flow(service.prefix, record)))
    if graph is not None:
        await _submit(service, graph, flow_id, record)
        await service.connection.follow(name_proxy_flow(record))
    if isinstance(budget, dict):
        await service.queue(refs[0][0].queue).usage.set_budget(known, _budget(budget))
    shape: dict[str, Any] = {"flowId": known, "kind": kind, "nodeCount": len(refs), "roots": [*map(_ref, roots)]}
    if kind == "tree":
        shape["root"] = _ref(refs[0])
    else:
        shape["jobs"] = [
            {"id": job_id, "name": node.given["name"], "queueName": keys.queue}
            for (keys, job_id), node in zip(refs, planned, strict=True)
        ]
    return Json(shape, 201)


def _graph(planned: list[_Planned]) -> Dag | None:
    if not planned:
        return None
    try:
        return Dag("http", [_node(node) for node in planned], queue=planned[0].given["queueName"])
    except (CycleError, DuplicateNodeError, UnknownDependencyError):
        raise _INTERNAL from None


async def _submit(service: Service, graph: Dag, flow_id: str, record: ProxyFlow) -> None:
    async with AsyncFlowProducer(connection=service.connection, prefix=service.prefix) as producer:
        try:
            await producer.submit(graph, flow_id=flow_id)
        except UsageError:  # nothing was written; after any other error something may have been
            await service.connection.run(remove_proxy_flow(service.prefix, record.id))
            raise


def _ref(ref: tuple[QueueKeys, str]) -> dict[str, str]:
    return {"jobId": ref[1], "queueName": ref[0].queue}


def _plan_tree(tree: object) -> list[_Planned]:
    planned: list[_Planned] = []

    def walk(given: object, depth: int) -> str:
        if not isinstance(given, dict) or depth > _DEEPEST:
            raise _INTERNAL
        node = _Planned(_node_name(given, len(planned)), given)
        planned.append(node)
        children = given.get("children") or []
        if not isinstance(children, list):
            raise _INTERNAL
        node.deps = [walk(child, depth + 1) for child in children]
        return node.name

    walk(tree, 0)
    return planned


def _plan_dag(dag: object) -> list[_Planned]:
    nodes = dag.get("nodes") if isinstance(dag, dict) else None
    if not isinstance(nodes, list) or not all(isinstance(given, dict) for given in nodes):
        raise _INTERNAL
    planned = [_Planned(_node_name(given, place), given) for place, given in enumerate(nodes)]
    named = {node.given.get("name"): node.name for node in planned}
    if len(named) < len(planned):
        raise _INTERNAL
    for node in planned:
        deps = node.given.get("deps") or []
        if not isinstance(deps, list) or not all(isinstance(dep, str) and dep in named for dep in deps):
            raise _INTERNAL
        node.deps = list(dict.fromkeys(named[dep] for dep in deps))
    return planned


def _node_name(given: Mapping[str, Any], place: int) -> str:
    """Return a name that is unique in the flow, made from the job's name."""
    text = given.get("name")
    if not isinstance(text, str) or not text:
        raise _INTERNAL
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "-" for letter in text[:64])
    return f"{kept}-{place}" if place else kept


def _node(node: _Planned) -> Node:
    given = node.given
    if "data" not in given:
        raise _NO_DATA
    options = given.get("opts")
    options = options if isinstance(options, dict) else {}
    if options.get("jobId") is not None:
        raise HttpError(
            400, "opts.jobId is not supported in a flow, whose jobs are named after their nodes; leave it out"
        )
    check_own_options(options)
    placed = addition(given["name"], "null", {key: value for key, value in options.items() if key != "parent"}).options
    return Node(
        node.name, task=given["name"], queue=given["queueName"], data=given["data"], options=placed, deps=node.deps
    )


def _budget(given: Mapping[str, Any]) -> Budget:
    def amounts(name: str) -> dict[str, float]:
        found = given.get(name)
        pairs = found.items() if isinstance(found, dict) else ()
        return {category: amount for category, amount in pairs if is_number(amount) and amount > 0}

    def bound(name: str) -> float | None:
        value = given.get(name)
        return value if is_number(value) and value > 0 else None

    unit = given.get("costUnit")
    return Budget(
        max_tokens=bound("maxTotalTokens"),
        max_tokens_by=amounts("maxTokens"),
        token_weights=amounts("tokenWeights"),
        max_cost=bound("maxTotalCost"),
        max_cost_by=amounts("maxCosts"),
        cost_unit=unit if isinstance(unit, str) and unit else None,
        on_exceeded="pause" if given.get("onExceeded") == "pause" else "fail",
    )


async def _find(request: Request) -> ProxyFlow:
    service = request.service
    service.check_open()
    flow = await service.connection.follow(read_proxy_flow(service.prefix, request.params["id"]))
    if flow is None:
        raise HttpError(404, "Flow not found")
    for keys, _ in flow.jobs:
        service.check_allowed(keys.queue)
    return flow


async def get_flow(request: Request) -> Json:
    """Return a flow with all its jobs."""
    flow = await _find(request)
    nodes = await _read_nodes(request.service, flow)
    return Json(await _summary(request.service, flow, nodes) | {"nodes": nodes})


async def get_tree(request: Request) -> Json:
    """Return a flow with its jobs as a tree."""
    flow = await _find(request)
    nodes = await _read_nodes(request.service, flow)
    return Json(await _summary(request.service, flow, nodes) | {"tree": list(_tree(flow, nodes))})


async def _read_nodes(service: Service, flow: ProxyFlow) -> list[dict[str, Any]]:
    records = await service.connection.follow(job_records.jobs(flow.jobs))
    nodes = []
    for (keys, _), record in zip(flow.jobs, records, strict=True):
        if record is None:
            continue
        shape = job_shape(record) | {"flowId": flow.id, "queueName": keys.queue}
        parents = await service.connection.follow(job_records.parents(keys, record.id))
        if len(parents) == 1:
            shape |= {"parentId": parents[0].job_id, "parentQueue": parents[0].keys.queue}
        elif parents:
            for name in ("parentId", "parentQueue"):
                shape.pop(name, None)
            shape["parentIds"] = [parent.job_id for parent in parents]
            shape["parentQueues"] = [parent.keys.queue for parent in parents]
        nodes.append(shape)
    return sorted(nodes, key=lambda node: (node["timestamp"], node["queueName"], node["id"]))


async def _summary(service: Service, flow: ProxyFlow, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    usage = budget = None
    if len(flow.roots) == 1:
        keys, root_id = flow.roots[0]
        ledger = AsyncQueue(keys.queue, connection=service.connection, prefix=service.prefix).usage
        usage = totals_shape(await ledger.of_flow(root_id))
        state = await ledger.budget(root_id)
        budget = None if state is None else budget_shape(state)
    return {
        "budget": budget,
        "counts": dict(Counter(node["state"] for node in nodes)),
        "createdAt": flow.created_ms,
        "flowId": flow.id,
        "kind": flow.kind,
        "roots": [_ref(ref) for ref in flow.roots],
        "usage": usage,
    }


def _tree(flow: ProxyFlow, nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the roots with the nodes below them: in a tree the children, in a graph the dependents."""
    below: dict[tuple[str, str], list[dict[str, Any]]] = {}
    by_ref = {(node["queueName"], node["id"]): node for node in nodes}
    for node in nodes:
        for parent in _parents_of(node):
            if flow.kind == "tree":
                below.setdefault(parent, []).append(node)
            elif parent in by_ref:
                below.setdefault((node["queueName"], node["id"]), []).append(by_ref[parent])

    def grow(node: dict[str, Any], path: frozenset[tuple[str, str]]) -> dict[str, Any]:
        own = (node["queueName"], node["id"])
        children = () if own in path or len(path) > _DEEPEST else below.get(own, ())
        return node | {"children": [grow(child, path | {own}) for child in children]}

    for keys, job_id in flow.roots:
        yield grow(by_ref.get((keys.queue, job_id)) or _gone(flow, keys, job_id), frozenset())


def _parents_of(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "parentIds" in node:
        return list(zip(node["parentQueues"], node["parentIds"], strict=True))
    return [(node.get("parentQueue", node["queueName"]), node["parentId"])] if "parentId" in node else []


def _gone(flow: ProxyFlow, keys: QueueKeys, job_id: str) -> dict[str, Any]:
    return {
        "attemptsMade": 0, "data": None, "flowId": flow.id, "id": job_id, "name": "", "opts": {}, "progress": 0,
        "queueName": keys.queue, "state": "missing", "timestamp": 0,
    }  # fmt: skip


async def cancel_flow(request: Request) -> Json:
    """Cancel a flow's unfinished jobs, and remove its record."""
    flow = await _find(request)
    service = request.service
    shapes: list[dict[str, Any]] = []
    records = await service.connection.follow(job_records.jobs(flow.jobs, ("state",)))
    for (keys, job_id), record in zip(flow.jobs, records, strict=True):
        shape: dict[str, Any] = {"id": job_id, "queueName": keys.queue}
        if record is None:
            shapes.append(shape | {"status": "missing"})
            continue
        shape["state"] = str(record.state)
        status = "skipped"
        if record.state not in (JobState.COMPLETED, JobState.FAILED):
            try:
                status = str(await service.queue(keys.queue).cancel(job_id))
            except JobNotFoundError:
                status = "not_found"
        shapes.append(shape | {"status": status})
    # Last: until then, a repeated request finds the jobs that are left.
    await service.connection.run(remove_proxy_flow(service.prefix, flow.id))
    found = Counter(shape["status"] for shape in shapes)
    counts = {"flagged": found["flagged"], "revoked": found["revoked"]}
    return Json(counts | {"flowId": flow.id, "jobs": shapes, "skipped": len(shapes) - sum(counts.values())})
