"""A plan in the calls of our own library: whole graphs at a time, over any number of queues.

A graph of one queue is one call. A larger one, or one of several queues, goes in parts: first all parts are written,
with all jobs held; then the flow's record says that nothing is missing; then the jobs are released. So nothing starts
before all of it is there, and whoever finds the record knows how far its submitter came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from orchestration_queue.flows.dag import Dag
from orchestration_queue.flows.planned_node import PlannedNode, PlannedNodes, dependents_first
from orchestration_queue.flows.record import FlowRecord
from orchestration_queue.flows.rules import TriggerRule
from orchestration_queue.protocol.call import Call, Operation, Reply, optional_text
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import graphs, notifications
from orchestration_queue.protocol.operations.budgets import budget_calls, hold_to
from orchestration_queue.protocol.operations.graphs import Edge, Graph, GraphNode, OutsideDependency, OutsideDependent
from orchestration_queue.protocol.placement import ParentRef, new_job

__all__ = [
    "HELD",
    "RUNNING",
    "SUBMITTING",
    "GraphPart",
    "Submission",
    "SubmissionSnapshot",
    "limit_calls",
    "read_submission",
    "submission",
]

SUBMITTING, RUNNING = "submitting", "running"
"""States of a flow's record while parts may be missing, and when none is."""

HELD = "held"
"""Field of a running flow's record while jobs may be held from its submission."""

_NODE_COST, _BYTES = 8, 256
"""What a node costs a server, in edges, and how many bytes of data cost as much as an edge."""
_MOST_COST = 16 * graphs.MOST_NODES
"""Most of a call, so that it holds the server for less than 10 ms."""


@dataclass(frozen=True, slots=True)
class GraphPart:
    """What one call writes.

    Attributes:
        keys: The queue.
        nodes: The nodes, dependents before those they wait for.
    """

    keys: QueueKeys
    nodes: list[PlannedNode] = field(default_factory=list)

    @property
    def job_ids(self) -> list[str]:
        """The ids of their jobs."""
        return [planned.job_id for planned in self.nodes]


@dataclass(frozen=True, slots=True)
class Submission:
    """What to send to submit a plan.

    Attributes:
        flow_id: The submission's id.
        keys: The flow's own queue, where its record is.
        record: The record's text.
        parts: What is written call by call; the first of them writes the record, too.
        limits: Calls that bind the jobs to the flow's budget and concurrency, when all are there.
    """

    flow_id: str
    keys: QueueKeys
    record: str
    parts: Sequence[GraphPart]
    limits: Sequence[Call]
    _places: dict[str, tuple[GraphPart, int]] = field(repr=False)

    @property
    def is_held(self) -> bool:
        """Whether jobs must not start before a second exchange, because the first takes more than one call."""
        return len(self.parts) > 1 or bool(self.limits)

    def writes(self, now_ms: int) -> Iterator[Operation[graphs.Submitted]]:
        """Write all parts. Sent again, they write what is missing."""
        for part in self.parts:
            yield graphs.submit_graph(
                part.keys,
                self.graph(part, now_ms),
                now_ms,
                flow_id=self.flow_id,
                record=self.record if part is self.parts[0] else "",
                held=self.is_held,
            )

    def commit(self) -> Call:
        """Say in the record that nothing is missing: from here on, the flow only has to be released."""
        return Call("HSET", (self.keys.flow(self.flow_id),), ("state", RUNNING, HELD, "1"))

    def releases(self, now_ms: int) -> Iterator[tuple[QueueKeys, Operation[notifications.Propagated]]]:
        """Let the jobs go, those first that wait for others. Sent again, they pass over what is not held."""
        for part in self.parts:
            if part.nodes:
                yield part.keys, graphs.release(part.keys, part.job_ids, now_ms)

    def done(self) -> Call:
        """Say in the record that nothing is held from the submission any more."""
        return Call("HDEL", (self.keys.flow(self.flow_id),), (HELD,))

    def graph(self, part: GraphPart, now_ms: int) -> Graph:
        """One part, as the server is told of it."""
        nodes, edges = [], []
        waits_for, awaited_by = [], []
        for place, planned in enumerate(part.nodes):
            node = planned.node
            job = new_job(node.job_name, planned.data_text, planned.options, now_ms)
            nodes.append(GraphNode(job, "" if node.trigger_rule is TriggerRule.ALL_SUCCESS else node.trigger_rule))
            for names, is_weak in ((node.deps, False), (node.optional_deps, True)):
                for name in names:
                    other, other_place = self._places[name]
                    if other is not part:
                        waits_for.append(OutsideDependency(place, _ref(other, other_place), is_weak))
            for name in planned.dependents:  # in the graph's order, which the jobs keep
                other, other_place = self._places[name]
                if other is part:
                    edges.append(Edge(other_place, place, node.name in part.nodes[other_place].node.optional_deps))
                else:
                    awaited_by.append(OutsideDependent(place, _ref(other, other_place)))
        return Graph(nodes, edges, waits_for, awaited_by)


def _ref(part: GraphPart, place: int) -> ParentRef:
    return ParentRef(part.keys, part.nodes[place].job_id)


def submission(flow_id: str, dag: Dag, keys: QueueKeys, nodes: PlannedNodes) -> Submission:
    """Cut a plan into calls.

    Args:
        flow_id: The submission's id.
        dag: The graph.
        keys: The flow's own queue.
        nodes: The nodes, dependencies before dependents.
    """
    parts = _parts(keys, nodes)
    places = {planned.node.name: (part, place) for part in parts for place, planned in enumerate(part.nodes)}
    limits = [*limit_calls(flow_id, dag, keys, nodes)]
    return Submission(flow_id, keys, FlowRecord.of(dag).text(), parts, limits, places)


def _parts(own: QueueKeys, nodes: PlannedNodes) -> list[GraphPart]:
    """The nodes by queue, the flow's own first, even when it has none; as many to a part as one call may write."""
    parts = {own: [GraphPart(own)]}
    spent: dict[QueueKeys, int] = {}
    for planned in dependents_first(nodes):
        there = parts.setdefault(planned.keys, [GraphPart(planned.keys)])
        cost = _NODE_COST + len(planned.node.waits_for) + len(planned.data_text) // _BYTES
        so_far = spent.get(planned.keys, 0)
        if there[-1].nodes and (so_far + cost > _MOST_COST or len(there[-1].nodes) == graphs.MOST_NODES):
            there.append(GraphPart(planned.keys))
            so_far = 0
        there[-1].nodes.append(planned)
        spent[planned.keys] = so_far + cost
    return [part for queue in parts.values() for part in queue]


def limit_calls(flow_id: str, dag: Dag, keys: QueueKeys, nodes: PlannedNodes) -> Iterable[Call]:
    """Callbacks are bound by nothing: they are to tell of a spent budget, too."""
    bound = [ParentRef((planned := nodes[node.name]).keys, planned.job_id) for node in dag.nodes]
    if dag.options.budget is not None:
        yield from budget_calls(keys, flow_id, dag.options.budget)
        yield from hold_to(keys, flow_id, bound)
    if dag.options.concurrency is not None:
        yield from _share_places(flow_id, dag.options.concurrency, bound)


def _share_places(flow_id: str, places: int, jobs: Sequence[ParentRef]) -> Iterator[Call]:
    """Make the jobs, all of one queue, a group whose members have no turns: each takes a place when it could run."""
    group, keys = f"flow.{flow_id}", jobs[0].keys
    yield Call("HSET", (keys.named(f"group:{group}"),), ("maxConcurrency", places))
    for ref in jobs:
        yield Call("HSET", (keys.job(ref.job_id),), ("groupKey", group))


@dataclass(frozen=True, slots=True)
class SubmissionSnapshot:
    """What the server knows of a flow.

    Attributes:
        record: The text of its record; None when there is none.
        state: ``submitting`` while parts may be missing.
        is_held: Whether jobs may be held from its submission.
    """

    record: str | None
    state: str | None
    is_held: bool


def read_submission(keys: QueueKeys, flow_id: str) -> Operation[SubmissionSnapshot]:
    """Look how far a flow was submitted."""

    def read(reply: Reply) -> SubmissionSnapshot:
        record, state, held = map(optional_text, reply)
        return SubmissionSnapshot(record, state, held is not None)

    return Operation(Call("HMGET", (keys.flow(flow_id),), ("plan", "state", HELD)), read)
