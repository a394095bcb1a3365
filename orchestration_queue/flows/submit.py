"""Submit a plan with our own library: whole graphs at a time, over any number of queues.

A graph in one queue is one call. A larger one, or one that spans queues, is sent in parts: first all parts are written,
with all jobs held; then the flow's record says that it is complete; then the jobs are released. So nothing starts
before all of it is stored, and a reader of the record knows how far its submitter came. The conversation can be
interrupted at any point and repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from orchestration_queue.errors import StateError
from orchestration_queue.flows.dag import Dag
from orchestration_queue.flows.node import TriggerRule
from orchestration_queue.flows.plan_calls import RUNNING, PlannedNode, PlannedNodes, dependents_first, limit_calls
from orchestration_queue.flows.record import FlowRecord
from orchestration_queue.protocol.call import Call, Conversation, Operation, Reply, all_good, chunks, optional_text
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, graphs, notifications
from orchestration_queue.protocol.operations.graphs import (
    Edge,
    Graph,
    GraphNode,
    OutsideDependency,
    OutsideDependent,
    Submitted,
)
from orchestration_queue.protocol.operations.notifications import PendingNotifications, notify_all
from orchestration_queue.protocol.placement import JobEncoder, ParentRef

__all__ = [
    "HELD",
    "SUBMITTING",
    "GraphPart",
    "Launch",
    "Submission",
    "SubmissionSnapshot",
    "launch",
    "read_submission",
    "submission",
]

SUBMITTING = "submitting"
"""State of a flow's record while parts may be missing."""

HELD = "held"
"""Field of a running flow's record while jobs may be held from its submission."""

# A node takes the server about 25 us, an edge 3 (python -m tests.bench.flows).
_NODE_COST, _BYTES = 8, 256
"""The cost of a node in edges, and how many bytes of data cost as much as an edge."""
_MOST_COST = 8 * graphs.MOST_NODES
"""Maximum cost of a call, so that it blocks the server for less than 10 ms."""


@dataclass(frozen=True, slots=True)
class GraphPart:
    """What one call writes.

    Attributes:
        keys: The queue.
        nodes: The nodes, dependents before their dependencies.
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
        keys: The flow's own queue, which stores its record.
        record: The record's text.
        parts: What is written call by call; the first also writes the record.
        limits: Calls that apply the flow's budget and concurrency to the jobs, once all are stored.
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
        """Record that nothing is missing: from here on, the flow only has to be released."""
        return Call("HSET", (self.keys.flow(self.flow_id),), ("state", RUNNING, HELD, "1"))

    def releases(self, now_ms: int) -> Iterator[tuple[QueueKeys, Operation[notifications.Propagated]]]:
        """Release the jobs, dependents first. Sent again, they skip jobs that are not held."""
        for part in self.parts:
            if part.nodes:
                yield part.keys, graphs.release(part.keys, part.job_ids, now_ms)

    def done(self) -> Call:
        """Record that no jobs are held from the submission."""
        return Call("HDEL", (self.keys.flow(self.flow_id),), (HELD,))

    def graph(self, part: GraphPart, now_ms: int) -> Graph:
        """Return one part as the server function takes it."""
        nodes, edges = [], []
        waits_for, awaited_by = [], []
        for place, planned in enumerate(part.nodes):
            node = planned.node
            encoder = JobEncoder.of(planned.options, now_ms)
            job = encoder.job(planned.task, planned.data_text, planned.job_id, now_ms)
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


def submission(flow_id: str, dag: Dag, keys: QueueKeys, nodes: PlannedNodes, record: FlowRecord) -> Submission:
    """Divide a plan into calls.

    Args:
        flow_id: The submission's id.
        dag: The graph.
        keys: The flow's own queue.
        nodes: The nodes, dependencies before dependents.
        record: The graph as the server stores it.
    """
    parts = _parts(keys, nodes)
    places = {planned.node.name: (part, place) for part in parts for place, planned in enumerate(part.nodes)}
    limits = [*limit_calls(flow_id, dag, keys, nodes)]
    return Submission(flow_id, keys, record.text(), parts, limits, places)


def _parts(own: QueueKeys, nodes: PlannedNodes) -> list[GraphPart]:
    """Return the nodes by queue, the flow's own first, even without nodes; each part as large as one call may be."""
    parts = {own: [GraphPart(own)]}
    spent: dict[QueueKeys, int] = {}
    for planned in dependents_first(nodes):
        there = parts.setdefault(planned.keys, [GraphPart(planned.keys)])
        # An edge between two parts is written by both.
        edges = len(planned.waits_for) + len(planned.dependents)
        cost = _NODE_COST + edges + len(planned.data_text) // _BYTES
        so_far = spent.get(planned.keys, 0)
        if there[-1].nodes and (so_far + cost > _MOST_COST or len(there[-1].nodes) == graphs.MOST_NODES):
            there.append(GraphPart(planned.keys))
            so_far = 0
        there[-1].nodes.append(planned)
        spent[planned.keys] = so_far + cost
    return [part for queue in parts.values() for part in queue]


@dataclass(frozen=True, slots=True)
class SubmissionSnapshot:
    """What the server knows about a flow.

    Attributes:
        record: The text of its record; None without one.
        state: ``submitting`` while parts may be missing.
        is_held: Whether jobs may be held from its submission.
    """

    record: str | None
    state: str | None
    is_held: bool


def read_submission(keys: QueueKeys, flow_id: str) -> Operation[SubmissionSnapshot]:
    """Read how far a flow's submission came."""

    def read(reply: Reply) -> SubmissionSnapshot:
        record, state, held = map(optional_text, reply)
        return SubmissionSnapshot(record, state, held is not None)

    return Operation(Call("HMGET", (keys.flow(flow_id),), ("plan", "state", HELD)), read)


_PARTS_PER_EXCHANGE = 8

_UNKNOWN = SubmissionSnapshot(None, None, is_held=False)


@dataclass(frozen=True, slots=True)
class Launch:
    """A submitted flow.

    Attributes:
        cursors: By queue, the id of the last event before it was submitted.
        is_new: Whether all its jobs were just added.
    """

    cursors: Mapping[QueueKeys, str]
    is_new: bool


def launch(whole: Submission, now_ms: int, *, is_fresh: bool) -> Conversation[Launch]:
    """Submit a plan, or what is missing of it. Every exchange can be repeated.

    A graph in one call takes one exchange. Others take more: to write the parts, to record that all are stored, to
    release the jobs, and to record that all are released.

    Args:
        whole: What to submit.
        now_ms: Epoch milliseconds by the caller's clock.
        is_fresh: The flow's id is new, so nothing is read first.

    Raises:
        StateError: The id belongs to another flow, or workers abandoned the submission because it took too long.
        ServerError: The server refused a part; nothing has started.
    """
    known = _UNKNOWN if is_fresh else (yield from _look(whole))
    if known.record not in (None, whole.record):
        raise StateError(
            f"Flow {whole.flow_id!r} of queue {whole.keys.queue!r} exists with other nodes or options, but an id "
            "identifies one submission; choose another id, or remove that flow first."
        )
    queues = dict.fromkeys(part.keys for part in whole.parts)
    newest = [event_log.last_event_id(keys) for keys in queues]
    wanting = known.state in (None, SUBMITTING)
    writes = whole.writes(now_ms) if wanting else iter(())
    # The record's part goes first, and alone: from then on, others know that there is something to complete or sweep.
    first = list(islice(writes, 1))
    replies = all_good((yield [*(operation.call for operation in newest), *(write.call for write in first)]))
    cursors = {keys: operation.read(reply) for keys, operation, reply in zip(queues, newest, replies, strict=False)}
    submitted = [write.read(reply) for write, reply in zip(first, replies[len(newest) :], strict=True)]
    if whole.is_held and wanting:
        for part in chunks([*writes], _PARTS_PER_EXCHANGE):
            replies = all_good((yield [write.call for write in part]))
            submitted += [write.read(reply) for write, reply in zip(part, replies, strict=True)]
        yield from _commit(whole)
    left = [(part.keys, one.pending) for part, one in zip(whole.parts, submitted, strict=False)]
    if whole.is_held and (wanting or known.is_held):
        left += yield from _release(whole, now_ms)
    yield from notify_all(left, now_ms)
    return Launch(cursors, is_new=_count(submitted) == sum(len(part.nodes) for part in whole.parts))


def _look(whole: Submission) -> Conversation[SubmissionSnapshot]:
    look = read_submission(whole.keys, whole.flow_id)
    (reply,) = all_good((yield [look.call]))
    return look.read(reply)


def _count(submitted: Iterable[Submitted]) -> int:
    return sum(len(one.new) for one in submitted)


def _commit(whole: Submission) -> Conversation[None]:
    """Apply the flow's limits to the jobs, and record that nothing is missing, unless it has been swept meanwhile."""
    seen = yield from _look(whole)
    if seen.record is None:
        raise StateError(
            f"Flow {whole.flow_id!r} took so long to submit that workers abandoned and removed it; submit it again."
        )
    if seen.state != SUBMITTING:
        return  # another process submitted the same, and was faster
    for calls in chunks(whole.limits):
        all_good((yield calls))
    all_good((yield [whole.commit()]))


def _release(whole: Submission, now_ms: int) -> Conversation[list[tuple[QueueKeys, PendingNotifications]]]:
    releases = list(whole.releases(now_ms))
    replies = all_good((yield [operation.call for _, operation in releases]))
    all_good((yield [whole.done()]))
    return [(keys, operation.read(reply).pending) for (keys, operation), reply in zip(releases, replies, strict=True)]
