"""A plan as calls: its nodes, the calls of glide-mq's library, and the transaction that carries them.

Dependents are created before their dependencies, and each names all its dependencies from the start. So if a dependency
completes, even halfway through a submission sent call by call, its dependents know what else is missing. In a
transaction nothing else reaches the server between these calls, so nothing starts before all of it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import Final, TypeAlias

from orchestration_queue.errors import FlowError
from orchestration_queue.flows.dag import Dag
from orchestration_queue.flows.node import Node, TriggerRule
from orchestration_queue.flows.record import FlowRecord
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Word
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import HOLD, QueueKeys
from orchestration_queue.protocol.operations import graphs
from orchestration_queue.protocol.operations.budgets import apply_budget, budget_calls
from orchestration_queue.protocol.placement import JobEncoder, ParentRef, add_job

__all__ = [
    "MAX_CALLS",
    "OUR_OPTIONS",
    "RUNNING",
    "PlannedCall",
    "PlannedNode",
    "PlannedNodes",
    "dependents_first",
    "limit_calls",
    "needs_our_library",
    "node_calls",
    "plan_calls",
    "transaction_calls",
]


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node, ready to be submitted.

    Attributes:
        node: The graph's node, after the flow's options were applied.
        level: 0 without dependencies; otherwise one more than the highest level of its dependencies.
        keys: Its queue.
        job_id: Its job's id.
        data_text: Its encoded data.
        dependents: Names of the nodes that wait for it.
        options: Its options, without its id.
        task: Its job's name.
        waits_for: Names of the nodes that it waits for.
        member: Its name in its dependents' lists of dependencies.
    """

    node: Node
    level: int
    keys: QueueKeys
    job_id: str
    data_text: str
    dependents: tuple[str, ...]
    options: JobOptions
    task: str
    waits_for: Sequence[str]
    member: str


PlannedNodes: TypeAlias = Mapping[str, PlannedNode]
"""The nodes of a plan by name, dependencies before dependents."""


def dependents_first(nodes: PlannedNodes) -> list[PlannedNode]:
    """Return the nodes from the last level to the first, each level in its own order."""
    levels = [list(level) for _, level in groupby(nodes.values(), attrgetter("level"))]
    return [planned for level in reversed(levels) for planned in level]


_MEMBERS_PER_CALL = 1000
"""Dependencies named in one call: a script unpacks them onto a stack with a limit of some thousand."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call of a plan, and its purpose.

    Attributes:
        node: The node that it creates, or whose wiring it completes.
        waits_for: The nodes that ``node`` waits for from this call on.
        call: The call.
    """

    node: str
    waits_for: tuple[str, ...]
    call: Call


def plan_calls(nodes: PlannedNodes, now_ms: int) -> Iterator[PlannedCall]:
    """Return the calls that create all jobs and wire them, in an order in which nothing can start too early.

    Args:
        nodes: The nodes, dependencies before dependents.
        now_ms: Epoch milliseconds by the caller's clock.

    Raises:
        FlowError: The graph needs more than these calls can express.
    """
    for planned in nodes.values():
        if problem := _problem(planned, nodes):
            raise FlowError(f"Node {planned.node.name!r} {problem}.")
    return (call for planned in dependents_first(nodes) for call in node_calls(nodes, planned, now_ms))


def _problem(planned: PlannedNode, nodes: PlannedNodes) -> str | None:
    """Return what the frozen functions can't do for a node, and what to do about it."""
    if planned.node.trigger_rule is not TriggerRule.ALL_SUCCESS:
        return f"has the trigger rule {planned.node.trigger_rule}, which glide-mq's library does not know; drop it"
    if planned.node.optional_deps:
        return "has optional_deps, which glide-mq's library does not know; drop them"
    # Several dependents are only found within the job's own queue.
    dependents = [nodes[name] for name in planned.dependents]
    stranger = next((other for other in dependents if other.keys != planned.keys), None)
    if stranger is not None and len(dependents) > 1:
        return (
            f"of queue {planned.keys.queue!r} has several dependents, but with glide-mq's library, completing it can't "
            f"release {stranger.node.name!r} in queue {stranger.keys.queue!r}; put them in one queue, or give "
            f"{planned.node.name!r} a single dependent that the others wait for"
        )
    return None


def node_calls(
    nodes: PlannedNodes, planned: PlannedNode, now_ms: int, *, registers_all: bool = False
) -> list[PlannedCall]:
    """Return the calls that create one node's job and wire it to its dependents.

    Args:
        nodes: The whole plan.
        planned: The node.
        now_ms: Epoch milliseconds by the caller's clock.
        registers_all: Register a dependent of another queue, too, instead of naming it in the job's record. In a
            cluster a record must not name it: other clients' completions would access keys in another slot.
    """
    only = nodes[planned.dependents[0]] if len(planned.dependents) == 1 else None
    is_elsewhere = only is not None and only.keys != planned.keys
    if registers_all and is_elsewhere:
        only = None
    if planned.waits_for:
        calls = _create_waiting(nodes, planned, now_ms)
        in_record = only if is_elsewhere else None
    else:
        in_record = only
        parent = ParentRef(only.keys, only.job_id) if only else None
        # It has no dependencies: a worker may complete it before the next call arrives.
        options = planned.options.model_copy(update={"job_id": planned.job_id})
        create = add_job(planned.keys, planned.task, planned.data_text, options, now_ms, parent=parent)
        calls = [PlannedCall(planned.node.name, (), create)]
    if in_record is None:
        calls += _registrations(nodes, planned)
    elif planned.waits_for:
        # registerParent serves parents in the job's own queue; a parent elsewhere is found through these fields.
        calls.append(_fields(planned, {"parentId": in_record.job_id, "parentQueue": in_record.keys.queue}))
    return calls


def _create_waiting(nodes: PlannedNodes, planned: PlannedNode, now_ms: int) -> list[PlannedCall]:
    """Create a job that waits, before any of its dependencies exists."""
    name, keys, deps = planned.node.name, planned.keys, planned.waits_for
    members = [nodes[dep].member for dep in deps]
    create = glidemq.add_flow(
        keys,
        parent_name=planned.task,
        parent_data=planned.data_text,
        parent_opts=JobEncoder.of(planned.options, now_ms).opts(planned.job_id),
        timestamp_ms=now_ms,
        parent_max_attempts=planned.options.attempts,
        parent_custom_id=planned.job_id,
        extra_deps=members[:_MEMBERS_PER_CALL],
    )
    calls = [PlannedCall(name, tuple(deps[:_MEMBERS_PER_CALL]), create)]
    for start in range(_MEMBERS_PER_CALL, len(deps), _MEMBERS_PER_CALL):
        part = slice(start, start + _MEMBERS_PER_CALL)
        add = Call("SADD", (keys.deps(planned.job_id),), tuple(members[part]))
        calls.append(PlannedCall(name, tuple(deps[part]), add))
    return calls


def _registrations(nodes: PlannedNodes, planned: PlannedNode) -> list[PlannedCall]:
    dependents, calls = [nodes[name] for name in planned.dependents], []
    for dependent in dependents:
        register = glidemq.register_parent(
            job_key=planned.keys.job(planned.job_id),
            parents_key=planned.keys.parents(planned.job_id),
            parent_deps_key=dependent.keys.deps(dependent.job_id),
            parent_job_key=dependent.keys.job(dependent.job_id),
            parent_stream_key=dependent.keys.stream,
            parent_events_key=dependent.keys.events,
            job_id=planned.job_id,
            parent_id=dependent.job_id,
            parent_queue=dependent.keys.base,
            deps_member=planned.member,
        )
        calls.append(PlannedCall(dependent.node.name, (planned.node.name,), register))
    if dependents:
        ids = codec.dump_json([dependent.job_id for dependent in dependents])
        queues = codec.dump_json([dependent.keys.queue for dependent in dependents])
        calls.append(_fields(planned, {"parentIds": ids, "parentQueues": queues}))
    return calls


def _fields(planned: PlannedNode, fields: Mapping[str, str]) -> PlannedCall:
    """Store the dependents in the job, where other clients read them."""
    words = tuple(chain.from_iterable(fields.items()))
    return PlannedCall(planned.node.name, (), Call("HSET", (planned.keys.job(planned.job_id),), words))


RUNNING: Final = "running"
"""State of a flow's record when it is completely stored."""

MAX_CALLS: Final = 300
"""Maximum calls of one transaction, which blocks all other clients for about 5 ms."""

_NEEDS_MORE = (TriggerRule.ALL_FAILED, TriggerRule.ONE_FAILED)
"""Rules by which a node doesn't run once all of its dependencies have completed."""


def needs_our_library(dag: Dag) -> bool:
    """Return whether a graph needs our workers, and our library, to run as specified."""
    special = [node for node in dag.all_nodes if node.trigger_rule is not TriggerRule.ALL_SUCCESS or node.optional_deps]
    return bool(special or [name for name in OUR_OPTIONS if getattr(dag.options, name)])


OUR_OPTIONS: Final = ("fail_fast", "timeout", "retention", "concurrency", "budget")
"""Options of flows that glide-mq's library doesn't have."""


def transaction_calls(
    flow_id: str,
    dag: Dag,
    keys: QueueKeys,
    nodes: PlannedNodes,
    record: FlowRecord,
    now_ms: int,
    *,
    registers_all: bool = False,
) -> list[PlannedCall]:
    """Return the calls that submit a graph: its record, then its nodes from the last level of Kahn's order on.

    Args:
        flow_id: The submission's id.
        dag: The graph.
        keys: The flow's own queue.
        nodes: The nodes, dependencies before dependents.
        record: The graph as the server stores it.
        now_ms: Epoch milliseconds by the caller's clock.
        registers_all: As for :func:`node_calls`.
    """
    fields = ("plan", record.text(), "createdAt", now_ms, "state", RUNNING)
    planned_calls = [
        PlannedCall("", (), Call("HSET", (keys.flow(flow_id),), fields)),
        *[PlannedCall("", (), Call("ZADD", (index,), (now_ms, flow_id))) for index in (keys.flows, keys.flows_due)],
    ]
    for planned in dependents_first(nodes):
        calls = node_calls(nodes, planned, now_ms, registers_all=registers_all)
        noted = calls.pop().call.args if calls[-1].call.name == "HSET" else ()
        own_calls = _own_calls(flow_id, nodes, planned, now_ms, noted)
        planned_calls += [*calls, *[PlannedCall(planned.node.name, (), call) for call in own_calls]]
    limits = [PlannedCall("", (), call) for call in limit_calls(flow_id, dag, keys, nodes)]
    return planned_calls + limits


def _own_calls(
    flow_id: str, nodes: PlannedNodes, planned: PlannedNode, now_ms: int, noted: Sequence[Word]
) -> list[Call]:
    """Return the calls that store a node's flow, its rule, and which of its dependencies are optional."""
    node, keys = planned.node, planned.keys
    fields: list[Word] = [*noted, "flow", flow_id]
    if node.trigger_rule is not TriggerRule.ALL_SUCCESS:
        fields += ["triggerRule", node.trigger_rule]
    if node.optional_deps:
        fields += ["depsOptional", len(node.optional_deps)]
        fields += [word for name in node.optional_deps for word in (f"depweak:{nodes[name].member}", 1)]
    calls = [Call("HSET", (keys.job(planned.job_id),), tuple(fields))]
    if node.trigger_rule in _NEEDS_MORE:
        # A dependency that no job completes: glide-mq's functions start a node once all of its dependencies have.
        calls.append(Call("SADD", (keys.deps(planned.job_id),), (keys.member("__rule__"),)))
    if node.trigger_rule is TriggerRule.ALWAYS:
        calls.append(Call("SADD", (keys.deps(planned.job_id),), (keys.member(HOLD),)))
        calls.append(graphs.release(keys, [planned.job_id], now_ms).call)
    return calls


def limit_calls(flow_id: str, dag: Dag, keys: QueueKeys, nodes: PlannedNodes) -> Iterable[Call]:
    """Return the calls that limit the jobs. Callbacks are not limited: they also report an exceeded budget."""
    bound = [ParentRef((planned := nodes[node.name]).keys, planned.job_id) for node in dag.nodes]
    if dag.options.budget is not None:
        yield from budget_calls(keys, flow_id, dag.options.budget)
        yield from apply_budget(keys, flow_id, bound)
    if dag.options.concurrency is not None:
        yield from _limit_concurrency(flow_id, dag.options.concurrency, bound)


def _limit_concurrency(flow_id: str, slots: int, jobs: Sequence[ParentRef]) -> Iterator[Call]:
    """Make the jobs, all in one queue, a group without turns: each takes a slot when it could run."""
    group, keys = f"flow.{flow_id}", jobs[0].keys
    yield Call("HSET", (keys.named(f"group:{group}"),), ("maxConcurrency", slots))
    for ref in jobs:
        yield Call("HSET", (keys.job(ref.job_id),), ("groupKey", group))
