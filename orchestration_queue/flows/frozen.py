"""A plan in the calls that every glide-mq server knows, for servers without functions of ours.

Dependents are created before what they wait for, and each is told all its dependencies at birth. So whenever a
dependency completes, even half way through a submission sent call by call, its dependents know what else is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestration_queue.errors import FlowError
from orchestration_queue.flows.rules import TriggerRule
from orchestration_queue.flows.step import Step, Steps, dependents_first
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.placement import ParentRef, add_job

__all__ = ["PlannedCall", "planned"]

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


def planned(steps: Steps, now_ms: int) -> Iterator[PlannedCall]:
    """The calls that create all jobs and wire them, in an order in which nothing can start too early.

    Args:
        steps: The nodes, dependencies before dependents.
        now_ms: Epoch milliseconds by the caller's clock.

    Raises:
        FlowError: The graph needs what these calls cannot say.
    """
    for step in steps.values():
        if problem := _problem(step, steps):
            raise FlowError(f"Node {step.node.name!r} {problem}.")
    return _calls(steps, now_ms)


def _problem(step: Step, steps: Steps) -> str | None:
    """What of a node the frozen functions cannot do; what to do about it."""
    if step.node.trigger_rule is not TriggerRule.ALL_SUCCESS:
        return f"has the trigger rule {step.node.trigger_rule}, which glide-mq's library does not know; drop it"
    if step.node.optional_deps:
        return "has optional_deps, which glide-mq's library does not know; drop them"
    # Several dependents are only found within the job's own queue.
    dependents = [steps[name] for name in step.dependents]
    stranger = next((other for other in dependents if other.keys != step.keys), None)
    if stranger is not None and len(dependents) > 1:
        return (
            f"of queue {step.keys.queue!r} has several dependents, and by glide-mq's library, completing it cannot "
            f"release {stranger.node.name!r} in queue {stranger.keys.queue!r}; put them in one queue, or give "
            f"{step.node.name!r} a single dependent that the others wait for"
        )
    return None


def _calls(steps: Steps, now_ms: int) -> Iterator[PlannedCall]:
    for step in dependents_first(steps):
        yield from _waiting_job(steps, step, now_ms) if step.node.deps else _ready_job(steps, step, now_ms)


def _waiting_job(steps: Steps, step: Step, now_ms: int) -> Iterator[PlannedCall]:
    """Create a job that waits, before anything that it waits for exists."""
    name, keys, deps = step.node.name, step.keys, step.node.deps
    members = [steps[dep].member for dep in deps]
    create = glidemq.add_flow(
        id_key=keys.id,
        stream_key=keys.stream,
        scheduled_key=keys.scheduled,
        events_key=keys.events,
        parent_name=step.node.job_name,
        parent_data=step.data_text,
        parent_opts=codec.dump_json(step.options.wire()),
        timestamp_ms=now_ms,
        parent_max_attempts=step.node.options.attempts,
        parent_custom_id=step.job_id,
        extra_deps=members[:_MEMBERS_PER_CALL],
    )
    yield PlannedCall(name, tuple(deps[:_MEMBERS_PER_CALL]), create)
    for start in range(_MEMBERS_PER_CALL, len(deps), _MEMBERS_PER_CALL):
        part = slice(start, start + _MEMBERS_PER_CALL)
        add = Call("SADD", (keys.deps(step.job_id),), tuple(members[part]))
        yield PlannedCall(name, tuple(deps[part]), add)

    only = _only_dependent(steps, step)
    if only is not None and only.keys != keys:
        # registerParent serves parents of the job's own queue; a parent elsewhere is found through these fields.
        yield _fields(step, {"parentId": only.job_id, "parentQueue": only.keys.queue})
    else:
        yield from _registrations(steps, step)


def _ready_job(steps: Steps, step: Step, now_ms: int) -> Iterator[PlannedCall]:
    """Create a job that waits for nothing: a worker may complete it before the next call arrives."""
    only = _only_dependent(steps, step)
    parent = ParentRef(only.keys, only.job_id) if only else None
    create = add_job(step.keys, step.node.job_name, step.data_text, step.options, now_ms, parent=parent)
    yield PlannedCall(step.node.name, (), create)
    if parent is None:
        yield from _registrations(steps, step)


def _registrations(steps: Steps, step: Step) -> Iterator[PlannedCall]:
    dependents = [steps[name] for name in step.dependents]
    for dependent in dependents:
        register = glidemq.register_parent(
            job_key=step.keys.job(step.job_id),
            parents_key=step.keys.parents(step.job_id),
            parent_deps_key=dependent.keys.deps(dependent.job_id),
            parent_job_key=dependent.keys.job(dependent.job_id),
            parent_stream_key=dependent.keys.stream,
            parent_events_key=dependent.keys.events,
            job_id=step.job_id,
            parent_id=dependent.job_id,
            parent_queue=dependent.keys.base,
            deps_member=step.member,
        )
        yield PlannedCall(dependent.node.name, (step.node.name,), register)
    if dependents:
        ids = codec.dump_json([dependent.job_id for dependent in dependents])
        queues = codec.dump_json([dependent.keys.queue for dependent in dependents])
        yield _fields(step, {"parentIds": ids, "parentQueues": queues})


def _only_dependent(steps: Steps, step: Step) -> Step | None:
    return steps[step.dependents[0]] if len(step.dependents) == 1 else None


def _fields(step: Step, fields: Mapping[str, str]) -> PlannedCall:
    """Note the dependents in the job, where other clients look for them."""
    words = tuple(word for pair in fields.items() for word in pair)
    return PlannedCall(step.node.name, (), Call("HSET", (step.keys.job(step.job_id),), words))
