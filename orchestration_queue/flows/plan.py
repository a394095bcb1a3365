"""Compile a graph into the calls that submit it, in an order in which nothing can start too early.

Dependents are created before what they wait for, and each is told all its dependencies at birth. So whenever a
dependency completes, even half way through a submission sent call by call, its dependents know what else is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orchestration_queue.errors import FlowError, InvalidNameError
from orchestration_queue.flows import drawing
from orchestration_queue.flows.dag import Dag, Node
from orchestration_queue.options import MAX_NAME_LENGTH, JobOptions, name_problem
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.placement import ParentRef, add_job

__all__ = ["FlowPlan", "PlannedCall", "Step", "compile", "job_id_of", "split_job_id"]

_MEMBERS_PER_CALL = 1000
"""Dependencies named in one call: a script unpacks them onto a stack of some thousand places."""

_SCHEDULED = "repeat"
"""What the ids of scheduled jobs start with."""


def job_id_of(flow_id: str, node: str) -> str:
    """The id of a node's job: the same for each submission, so that submitting twice adds it once."""
    return f"{flow_id}.{node}"


def split_job_id(job_id: str) -> tuple[str, str] | None:
    """The flow's id and the node's name in a job id; None when it cannot be a flow's."""
    flow_id, dot, node = job_id.partition(".")
    return (flow_id, node) if dot and flow_id and node and flow_id != _SCHEDULED else None


@dataclass(frozen=True, slots=True)
class Step:
    """One node, ready to be submitted.

    Attributes:
        node: What the graph says about it.
        level: 0 when it waits for nothing, else one more than the highest level it waits for.
        keys: Its queue.
        job_id: Its job's id.
        data_text: Its encoded data.
        dependents: Names of the nodes that wait for it.
    """

    node: Node
    level: int
    keys: QueueKeys
    job_id: str
    data_text: str
    dependents: tuple[str, ...]

    @property
    def member(self) -> str:
        """How dependents name it among what they wait for."""
        return self.keys.member(self.job_id)

    @property
    def options(self) -> JobOptions:
        """Its options, with its id among them."""
        return self.node.options.model_copy(update={"job_id": self.job_id})


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


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """A graph, compiled for one submission. Looking at it sends nothing.

    Attributes:
        flow_id: The submission's id.
        dag: The graph.
        steps: Each node's step by name, dependencies before dependents.
    """

    flow_id: str
    dag: Dag
    steps: Mapping[str, Step]

    @property
    def is_single_slot(self) -> bool:
        """Whether all jobs are of one queue, so that one transaction can submit them."""
        return len({step.keys for step in self.steps.values()}) == 1

    def calls(self, now_ms: int) -> list[Call]:
        """Everything to send, in order.

        Sent twice, it changes nothing, as long as the jobs of the first time are still kept.

        Args:
            now_ms: Epoch milliseconds by the caller's clock.
        """
        return [planned.call for planned in self.planned(now_ms)]

    def planned(self, now_ms: int) -> Iterator[PlannedCall]:
        """The same, each call with what it is for."""
        for level in reversed(self.dag.levels):
            for node in level:
                step = self.steps[node.name]
                yield from self._waiting_job(step, now_ms) if node.deps else self._ready_job(step, now_ms)

    def _waiting_job(self, step: Step, now_ms: int) -> Iterator[PlannedCall]:
        """Create a job that waits, before anything that it waits for exists."""
        name, keys, deps = step.node.name, step.keys, step.node.deps
        members = [self.steps[dep].member for dep in deps]
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

        only = self._only_dependent(step)
        if only is not None and only.keys != keys:
            # registerParent serves parents of the job's own queue; a parent elsewhere is found through these fields.
            yield _fields(step, {"parentId": only.job_id, "parentQueue": only.keys.queue})
        else:
            yield from self._registrations(step)

    def _ready_job(self, step: Step, now_ms: int) -> Iterator[PlannedCall]:
        """Create a job that waits for nothing: a worker may complete it before the next call arrives."""
        only = self._only_dependent(step)
        parent = ParentRef(only.keys, only.job_id) if only else None
        create = add_job(step.keys, step.node.job_name, step.data_text, step.options, now_ms, parent=parent)
        yield PlannedCall(step.node.name, (), create)
        if parent is None:
            yield from self._registrations(step)

    def _registrations(self, step: Step) -> Iterator[PlannedCall]:
        dependents = [self.steps[name] for name in step.dependents]
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

    def _only_dependent(self, step: Step) -> Step | None:
        return self.steps[step.dependents[0]] if len(step.dependents) == 1 else None

    def explain(self) -> str:
        """The calls as a table in text: step, function, node, waits for."""
        planned = list(self.planned(0))
        nodes, levels = len(self.steps), len(self.dag.levels)
        unit = "in one transaction" if self.is_single_slot else "one by one"
        title = f"Flow {self.dag.name!r} as {self.flow_id}: {nodes} nodes, {levels} levels, {len(planned)} calls {unit}"
        rows = [
            (str(number), entry.call.name, entry.node, ", ".join(entry.waits_for))
            for number, entry in enumerate(planned, 1)
        ]
        return f"{title}\n\n{drawing.table(('step', 'function', 'node', 'waits for'), rows)}"

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart; arrows point from a node to those that wait for it."""
        return drawing.mermaid(self.dag)

    def to_dot(self) -> str:
        """The graph in Graphviz's language; arrows point from a node to those that wait for it."""
        return drawing.dot(self.dag)


def _fields(step: Step, fields: Mapping[str, str]) -> PlannedCall:
    """Note the dependents in the job, where other clients look for them."""
    words = tuple(word for pair in fields.items() for word in pair)
    return PlannedCall(step.node.name, (), Call("HSET", (step.keys.job(step.job_id),), words))


def compile(dag: Dag, flow_id: str, *, prefix: str = DEFAULT_PREFIX) -> FlowPlan:  # noqa: A001 - what it does
    """Turn a graph into a plan. Nothing is sent.

    Args:
        dag: The graph.
        flow_id: The submission's id, without dots; the same id again means the same submission.
        prefix: The key prefix of all queues.

    Raises:
        InvalidNameError: A job id made of flow id and node name is one the wire cannot carry.
        PayloadError: A node's data is not JSON, or is larger than 1 MiB.
        FlowError: A node has several dependents, and one of them is in another queue.
    """
    _check_flow_id(flow_id)
    keys = {queue: QueueKeys(queue, prefix) for queue in {dag.queue_of(node) for node in dag.nodes}}
    dependents: dict[str, list[str]] = {node.name: [] for node in dag.nodes}
    for node in dag.nodes:
        for dep in node.deps:
            dependents[dep].append(node.name)
    steps = {
        node.name: Step(
            node=node,
            level=number,
            keys=keys[dag.queue_of(node)],
            job_id=_checked_job_id(flow_id, node.name),
            data_text=codec.encode(node.data, f"The data of node {node.name!r}"),
            dependents=tuple(dependents[node.name]),
        )
        for number, level in enumerate(dag.levels)
        for node in level
    }
    for step in steps.values():
        _check_reach(step, [steps[name] for name in step.dependents])
    return FlowPlan(flow_id, dag, MappingProxyType(steps))


def _check_flow_id(flow_id: str) -> None:
    problem = name_problem(flow_id) or ("contains '.'" if "." in flow_id else None)
    if problem or flow_id == _SCHEDULED:
        raise InvalidNameError(
            f"Flow id {flow_id!r} {problem or 'is what scheduled jobs go by'}, and could not be told from the node in "
            "`{flow_id}.{node}`; use letters, digits, '-' and '_'."
        )


def _checked_job_id(flow_id: str, node: str) -> str:
    job_id = job_id_of(flow_id, node)
    if len(job_id) > MAX_NAME_LENGTH:
        raise InvalidNameError(
            f"Job id {job_id!r} is longer than {MAX_NAME_LENGTH} characters; shorten the flow id or the node's name."
        )
    return job_id


def _check_reach(step: Step, dependents: Sequence[Step]) -> None:
    """Refuse what the wire cannot notify: several dependents are only found within the job's own queue."""
    stranger = next((other for other in dependents if other.keys != step.keys), None)
    if stranger is not None and len(dependents) > 1:
        raise FlowError(
            f"Node {step.node.name!r} of queue {step.keys.queue!r} has several dependents, and completing it cannot "
            f"release {stranger.node.name!r} in queue {stranger.keys.queue!r}; put them in one queue, or give "
            f"{step.node.name!r} a single dependent that the others wait for."
        )
