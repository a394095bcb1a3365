"""A plan in the calls that every glide-mq server knows, for servers without functions of ours.

Dependents are created before what they wait for, and each is told all its dependencies at birth. So whenever a
dependency completes, even half way through a submission sent call by call, its dependents know what else is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestration_queue.errors import FlowError
from orchestration_queue.flows.planned_node import PlannedNode, PlannedNodes, dependents_first
from orchestration_queue.flows.rules import TriggerRule
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.placement import ParentRef, add_job

__all__ = ["PlannedCall", "node_calls", "plan_calls"]

_MEMBERS_PER_CALL = 1000
"""Dependencies named in one call: a script unpacks them onto a stack of some thousand places."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call of a plan, and what it is for.

    Attributes:
        node: The node it creates or completes the wiring of.
        waits_for: The nodes that ``node`` waits for from this call on.
        call: What to send.
    """

    node: str
    waits_for: tuple[str, ...]
    call: Call


def plan_calls(nodes: PlannedNodes, now_ms: int) -> Iterator[PlannedCall]:
    """The calls that create all jobs and wire them, in an order in which nothing can start too early.

    Args:
        nodes: The nodes, dependencies before dependents.
        now_ms: Epoch milliseconds by the caller's clock.

    Raises:
        FlowError: The graph needs what these calls cannot say.
    """
    for planned in nodes.values():
        if problem := _problem(planned, nodes):
            raise FlowError(f"Node {planned.node.name!r} {problem}.")
    return (call for planned in dependents_first(nodes) for call in node_calls(nodes, planned, now_ms))


def _problem(planned: PlannedNode, nodes: PlannedNodes) -> str | None:
    """What of a node the frozen functions cannot do; what to do about it."""
    if planned.node.trigger_rule is not TriggerRule.ALL_SUCCESS:
        return f"has the trigger rule {planned.node.trigger_rule}, which glide-mq's library does not know; drop it"
    if planned.node.optional_deps:
        return "has optional_deps, which glide-mq's library does not know; drop them"
    # Several dependents are only found within the job's own queue.
    dependents = [nodes[name] for name in planned.dependents]
    stranger = next((other for other in dependents if other.keys != planned.keys), None)
    if stranger is not None and len(dependents) > 1:
        return (
            f"of queue {planned.keys.queue!r} has several dependents, and by glide-mq's library, completing it cannot "
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
            cluster a record must not name it: other clients' completions would touch keys of another slot.
    """
    only = _only_dependent(nodes, planned)
    is_elsewhere = only is not None and only.keys != planned.keys
    if registers_all and is_elsewhere:
        only = None
    if planned.node.waits_for:
        calls = _waiting_job(nodes, planned, now_ms)
        in_record = only if is_elsewhere else None
    else:
        in_record = only
        parent = ParentRef(only.keys, only.job_id) if only else None
        # It waits for nothing: a worker may complete it before the next call arrives.
        create = add_job(planned.keys, planned.node.job_name, planned.data_text, planned.options, now_ms, parent=parent)
        calls = [PlannedCall(planned.node.name, (), create)]
    if in_record is None:
        calls += _registrations(nodes, planned)
    elif planned.node.waits_for:
        # registerParent serves parents of the job's own queue; a parent elsewhere is found through these fields.
        calls.append(_fields(planned, {"parentId": in_record.job_id, "parentQueue": in_record.keys.queue}))
    return calls


def _waiting_job(nodes: PlannedNodes, planned: PlannedNode, now_ms: int) -> list[PlannedCall]:
    """Create a job that waits, before anything that it waits for exists."""
    name, keys, deps = planned.node.name, planned.keys, planned.node.waits_for
    members = [nodes[dep].member for dep in deps]
    create = glidemq.add_flow(
        keys,
        parent_name=planned.node.job_name,
        parent_data=planned.data_text,
        parent_opts=codec.dump_json(planned.options.wire()),
        timestamp_ms=now_ms,
        parent_max_attempts=planned.node.options.attempts,
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


def _only_dependent(nodes: PlannedNodes, planned: PlannedNode) -> PlannedNode | None:
    return nodes[planned.dependents[0]] if len(planned.dependents) == 1 else None


def _fields(planned: PlannedNode, fields: Mapping[str, str]) -> PlannedCall:
    """Note the dependents in the job, where other clients look for them."""
    words = tuple(word for pair in fields.items() for word in pair)
    return PlannedCall(planned.node.name, (), Call("HSET", (planned.keys.job(planned.job_id),), words))
