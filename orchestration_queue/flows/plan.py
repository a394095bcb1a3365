"""Compile a graph into a plan: each node with its job's id, its data and its dependents, and the calls to send."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from orchestration_queue.errors import FlowError
from orchestration_queue.flows import drawing, plan_calls
from orchestration_queue.flows.dag import Dag
from orchestration_queue.flows.mapping import MAP, MAX_ELEMENTS, bound_data, element, group_of
from orchestration_queue.flows.node import Node
from orchestration_queue.flows.plan_calls import MAX_CALLS, OUR_OPTIONS, PlannedCall, PlannedNode, transaction_calls
from orchestration_queue.flows.record import FlowRecord, check_flow_id, check_job_id
from orchestration_queue.flows.submit import Submission, submission
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys, known_keys

__all__ = ["CARRIERS", "Carrier", "FlowPlan", "compile"]

Carrier: TypeAlias = Literal["transaction", "packed"]
"""How a plan's calls are sent: as they are in one MULTI/EXEC, or packed into calls of ``oq1_submitGraph``."""

CARRIERS: Final[tuple[Carrier, ...]] = ("transaction", "packed")


@dataclass(frozen=True)
class FlowPlan:
    """A graph, compiled for one submission. It sends nothing.

    Attributes:
        flow_id: The submission's id.
        dag: The graph.
        keys: The flow's own queue, which stores its record.
        nodes: The planned nodes by name, dependencies before dependents.
    """

    flow_id: str
    dag: Dag
    keys: QueueKeys
    nodes: Mapping[str, PlannedNode]

    @cached_property
    def queues(self) -> list[QueueKeys]:
        """The flow's own queue, and those of its nodes."""
        return list(dict.fromkeys([self.keys, *[planned.keys for planned in self.nodes.values()]]))

    @cached_property
    def record(self) -> FlowRecord:
        """The graph as the server stores it."""
        return FlowRecord.of(self.dag)

    def submission(self) -> Submission:
        """Return what to send to a server that has our library: a call per 100 nodes of a queue."""
        return submission(self.flow_id, self.dag, self.keys, self.nodes, self.record)

    @property
    def carrier(self) -> Carrier:
        """How the calls are sent by default: in one transaction, if all their keys share one slot.

        A graph that spans queues, or would block the server for too long, is packed.
        """
        few = sum([3 + 2 * len(planned.dependents) for planned in self.nodes.values()]) <= MAX_CALLS
        return "transaction" if few and len(self.queues) == 1 else "packed"

    def calls(self, now_ms: int) -> list[Call]:
        """Return the plain calls of glide-mq's library, without the record; see :meth:`planned`."""
        return [planned.call for planned in self.planned(now_ms)]

    def planned(self, now_ms: int) -> Iterator[PlannedCall]:
        """Yield the calls for a server that has only glide-mq's library, each with its purpose.

        Sending them twice changes nothing, as long as the jobs of the first time are still kept.

        Args:
            now_ms: Epoch milliseconds by the caller's clock.

        Raises:
            FlowError: That library can't run the graph.
        """
        if beyond := [name for name in OUR_OPTIONS if getattr(self.dag.options, name)]:
            raise FlowError(
                f"Flow {self.dag.name!r} has the option {beyond[0]}, which glide-mq's library does not know; drop it."
            )
        return plan_calls.plan_calls(self.nodes, now_ms)

    def transaction(self, now_ms: int, carrier: Carrier = "transaction") -> list[PlannedCall]:
        """Return the plan's calls, in order, each with its purpose.

        Args:
            now_ms: Epoch milliseconds by the caller's clock.
            carrier: How they are sent. Packed ones can go to several slots.
        """
        registers_all = carrier == "packed"
        return transaction_calls(
            self.flow_id, self.dag, self.keys, self.nodes, self.record, now_ms, registers_all=registers_all
        )

    def explain(self, carrier: Carrier | None = None) -> str:
        """Return the plan as text: the calls, how they are sent, and the nodes with their rules.

        Args:
            carrier: How the calls are sent; default: :attr:`carrier`.
        """
        carrier = carrier or self.carrier
        planned = self.transaction(0, carrier)
        title = f"Flow {self.dag.name!r} as {self.flow_id}: {len(self.nodes)} nodes, {len(self.dag.levels)} levels, "
        calls = drawing.table(
            ("call", "function", "queue", "for"),
            [
                (str(number), each.call.name, self._queue_of(each), _purpose(each))
                for number, each in enumerate(planned, 1)
            ],
        )
        sent = self._carrier_in_words(carrier)
        return f"{title}{len(planned)} calls\nCarrier: {sent}\n\n{calls}\n\n{drawing.node_table(self.dag)}"

    def _queue_of(self, planned: PlannedCall) -> str:
        return self.nodes[planned.node].keys.queue if planned.node else self.keys.queue

    def _carrier_in_words(self, carrier: Carrier) -> str:
        if carrier == "transaction":
            return "one transaction (MULTI/EXEC)"
        whole = self.submission()
        packed = f"packed into {len(whole.parts)} oq1_submitGraph"
        if not whole.is_held:
            return packed
        released = sum(1 for part in whole.parts if part.nodes)
        return f"{packed}, held until all are stored, then {released} oq1_releaseGraph"

    def to_mermaid(self) -> str:
        """Return a Mermaid flowchart, with arrows from a node to its dependents, dotted for optional dependencies."""
        return drawing.mermaid(self.dag)

    def to_dot(self) -> str:
        """Return a Graphviz digraph, with arrows from a node to its dependents, dashed for optional dependencies."""
        return drawing.dot(self.dag)


def _purpose(planned: PlannedCall) -> str:
    if not planned.node:
        return "the flow"
    return f"{planned.node} waits for {', '.join(planned.waits_for)}" if planned.waits_for else planned.node


def compile(  # noqa: A001 - what it does
    dag: Dag,
    flow_id: str,
    *,
    prefix: str = DEFAULT_PREFIX,
    finish: Callable[[str, str, JobOptions], JobOptions] | None = None,
) -> FlowPlan:
    """Compile a graph into a plan. Nothing is sent.

    Args:
        dag: The graph.
        flow_id: The submission's id, without dots; the same id means the same submission.
        prefix: The key prefix of all queues.
        finish: Returns the options a job is added with, from its queue, name and options; it can add headers.

    Raises:
        InvalidNameError: The job id made of flow id and node name is invalid.
        PayloadError: A node's data is not JSON, or larger than 1 MiB.
    """
    check_flow_id(flow_id)
    keys = {queue: known_keys(queue, prefix) for queue in dag.queues}
    dependents: dict[str, list[str]] = {node.name: [] for node in dag.all_nodes}
    queues: dict[str, str] = {}
    tasks: dict[str, str] = {}
    waits_for: dict[str, Sequence[str]] = {}
    for node in dag.all_nodes:
        queues[node.name], tasks[node.name] = dag.queue_of(node), node.job_name
        waits_for[node.name] = node.waits_for
        for dep in waits_for[node.name]:
            dependents[dep].append(node.name)
        if tasks[node.name] == MAP:
            # The longest name that an element can have.
            check_job_id(flow_id, group_of(element(node.name, MAX_ELEMENTS)))
    nodes: dict[str, PlannedNode] = {}
    for number, level in enumerate(dag.levels):
        for node in level:
            name, queue, task = node.name, queues[node.name], tasks[node.name]
            job_id = check_job_id(flow_id, name)
            data = bound_data(node, queues) if task == MAP else node.data
            options = _prioritize(node, dag.options.priority) if dag.options.priority else node.options
            options = options if finish is None else finish(queue, task, options)
            nodes[name] = PlannedNode(
                node=node,
                level=number,
                keys=keys[queue],
                job_id=job_id,
                data_text=codec.encode(data, f"The data of node {name!r}"),
                dependents=tuple(dependents[name]),
                options=options,
                task=task,
                waits_for=waits_for[name],
                member=keys[queue].member(job_id),
            )
    return FlowPlan(flow_id, dag, keys[dag.queue], MappingProxyType(nodes))


def _prioritize(node: Node, priority: int) -> JobOptions:
    """Return a node's options, with the flow's priority if it has none of its own and the wire would keep it."""
    if node.waits_for or node.options.priority or node.options.lifo:
        return node.options
    return node.options.model_copy(update={"priority": priority})
