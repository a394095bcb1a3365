"""Compile a graph into a plan: each node with its job's id, its data and its dependents, and what will be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from orchestration_queue.errors import FlowError
from orchestration_queue.flows import drawing, glidemq_plan
from orchestration_queue.flows.dag import Dag
from orchestration_queue.flows.glidemq_plan import PlannedCall
from orchestration_queue.flows.ids import check_flow_id, checked_job_id
from orchestration_queue.flows.mapping import MAP, MAX_ELEMENTS, bound_data, element, group_of
from orchestration_queue.flows.node import Node
from orchestration_queue.flows.planned_node import PlannedNode
from orchestration_queue.flows.submission import Submission, submission
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys

__all__ = ["FlowPlan", "LibraryName", "compile"]

LibraryName: TypeAlias = Literal["oq1", "glidemq"]
"""Whose functions submit a flow: ours, or those of every glide-mq server."""


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """A graph, compiled for one submission. Looking at it sends nothing.

    Attributes:
        flow_id: The submission's id.
        dag: The graph.
        keys: The flow's own queue, where its record is kept.
        nodes: The planned nodes by name, dependencies before dependents.
    """

    flow_id: str
    dag: Dag
    keys: QueueKeys
    nodes: Mapping[str, PlannedNode]

    @property
    def queues(self) -> list[QueueKeys]:
        """The flow's own queue, and those of its nodes."""
        return list(dict.fromkeys([self.keys, *(planned.keys for planned in self.nodes.values())]))

    @property
    def is_single_slot(self) -> bool:
        """Whether all jobs are of one queue."""
        return len({planned.keys for planned in self.nodes.values()}) == 1

    def submission(self) -> Submission:
        """What to send to a server that has our library: a call per thousand nodes of a queue."""
        return submission(self.flow_id, self.dag, self.keys, self.nodes)

    def calls(self, now_ms: int) -> list[Call]:
        """What to send to a server that only has glide-mq's library, in order: some calls per node.

        Sent twice, it changes nothing, as long as the jobs of the first time are still kept.

        Args:
            now_ms: Epoch milliseconds by the caller's clock.

        Raises:
            FlowError: That library cannot run the graph.
        """
        return [planned.call for planned in self.planned(now_ms)]

    def planned(self, now_ms: int) -> Iterator[PlannedCall]:
        """The same, each call with what it is for."""
        if beyond := [name for name in _KEPT_BY_OURS if getattr(self.dag.options, name)]:
            raise FlowError(
                f"Flow {self.dag.name!r} has the option {beyond[0]}, which glide-mq's library does not know; drop it."
            )
        return glidemq_plan.plan_calls(self.nodes, now_ms)

    def explain(self, library: LibraryName = "oq1") -> str:
        """What is sent, as tables in text: each call, and each node with its rule and what it waits for."""
        nodes, levels = len(self.nodes), len(self.dag.levels)
        rows = list(self._calls_in_words() if library == "oq1" else self._frozen_in_words())
        title = f"Flow {self.dag.name!r} as {self.flow_id}: {nodes} nodes, {levels} levels, {len(rows)} calls"
        calls = drawing.table(
            ("call", "function", "queue", "for"), [(str(number), *row) for number, row in enumerate(rows, 1)]
        )
        return f"{title}\n\n{calls}\n\n{drawing.node_table(self.dag)}"

    def _calls_in_words(self) -> Iterator[tuple[str, str, str]]:
        whole = self.submission()
        for part, write in zip(whole.parts, whole.writes(0), strict=True):
            yield write.call.name, part.keys.queue, _names(part.nodes)
        if not whole.is_held:
            return
        for call in whole.limits:
            yield call.name, self.keys.queue, "limits"
        yield whole.commit().name, self.keys.queue, "all are there"
        for part, (keys, release) in zip((part for part in whole.parts if part.nodes), whole.releases(0), strict=True):
            yield release.call.name, keys.queue, _names(part.nodes)
        yield whole.done().name, self.keys.queue, "none is held"

    def _frozen_in_words(self) -> Iterator[tuple[str, str, str]]:
        for each in self.planned(0):
            waits = f" waits for {', '.join(each.waits_for)}" if each.waits_for else ""
            yield each.call.name, self.nodes[each.node].keys.queue, f"{each.node}{waits}"

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart: arrows from a node to those that wait for it, dotted where it may fail."""
        return drawing.mermaid(self.dag)

    def to_dot(self) -> str:
        """The graph in Graphviz's language: arrows from a node to those that wait for it, dashed where it may fail."""
        return drawing.dot(self.dag)


_KEPT_BY_OURS = ("fail_fast", "timeout", "retention", "concurrency", "budget")


def _names(nodes: list[PlannedNode]) -> str:
    return ", ".join(planned.node.name for planned in nodes)


def compile(  # noqa: A001 - what it does
    dag: Dag,
    flow_id: str,
    *,
    prefix: str = DEFAULT_PREFIX,
    finish: Callable[[str, str, JobOptions], JobOptions] = lambda _queue, _name, options: options,
) -> FlowPlan:
    """Turn a graph into a plan. Nothing is sent.

    Args:
        dag: The graph.
        flow_id: The submission's id, without dots; the same id again means the same submission.
        prefix: The key prefix of all queues.
        finish: From a job's queue, name and options, the options it is added with: it may add headers.

    Raises:
        InvalidNameError: A job id made of flow id and node name is one the wire cannot carry.
        PayloadError: A node's data is not JSON, or is larger than 1 MiB.
    """
    check_flow_id(flow_id)
    keys = {queue: QueueKeys(queue, prefix) for queue in dag.queues}
    dependents: dict[str, list[str]] = {node.name: [] for node in dag.all_nodes}
    for node in dag.all_nodes:
        for dep in node.waits_for:
            dependents[dep].append(node.name)
    queues = {node.name: dag.queue_of(node) for node in dag.all_nodes}
    for mapped in (node for node in dag.all_nodes if node.job_name == MAP):
        checked_job_id(flow_id, group_of(element(mapped.name, MAX_ELEMENTS)))
    nodes = {
        node.name: PlannedNode(
            node=_finished(_urgent(node, dag.options.priority), queues[node.name], finish),
            level=number,
            keys=keys[dag.queue_of(node)],
            job_id=checked_job_id(flow_id, node.name),
            data_text=codec.encode(bound_data(node, queues), f"The data of node {node.name!r}"),
            dependents=tuple(dependents[node.name]),
        )
        for number, level in enumerate(dag.levels)
        for node in level
    }
    return FlowPlan(flow_id, dag, keys[dag.queue], MappingProxyType(nodes))


def _urgent(node: Node, priority: int) -> Node:
    """The node with the flow's priority, where it has none of its own and the wire keeps it."""
    if not priority or node.waits_for or node.options.priority or node.options.lifo:
        return node
    return replace(node, options=node.options.model_copy(update={"priority": priority}))


def _finished(node: Node, queue: str, finish: Callable[[str, str, JobOptions], JobOptions]) -> Node:
    options = finish(queue, node.job_name, node.options)
    return node if options is node.options else replace(node, options=options)
