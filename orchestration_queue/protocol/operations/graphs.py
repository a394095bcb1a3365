"""Graphs of jobs: submit, hold, release and retry, a bounded part of them per call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestration_queue.protocol.call import Operation, Reply, texts
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.functions.oq1 import NewJob
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.notifications import (
    MOST_CHANGES,
    MOST_NODES,
    PendingNotifications,
    Propagated,
    read_notifications,
    read_propagated,
)
from orchestration_queue.protocol.placement import ParentRef

__all__ = [
    "MOST_NODES",
    "Edge",
    "Graph",
    "GraphNode",
    "OutsideDependency",
    "OutsideDependent",
    "Retried",
    "Revived",
    "Submitted",
    "hold_nodes",
    "release",
    "retry_nodes",
    "submit_graph",
]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One job of a graph.

    Attributes:
        job: The job, with a custom id and no parent, from :func:`~..placement.new_job`.
        rule: The trigger rule; '' is ``all_success``.
    """

    job: NewJob
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """One node waits for a later one.

    Attributes:
        dependent: Index of the node that waits, from 0.
        dependency: Index of the node it waits for, greater than the dependent's.
        is_weak: The dependency counts as completed with any outcome.
    """

    dependent: int
    dependency: int
    is_weak: bool = False


@dataclass(frozen=True, slots=True)
class OutsideDependency:
    """One node waits for a job that another call writes, in any queue.

    Attributes:
        dependent: Index of the node that waits, from 0.
        dependency: The job it waits for.
        is_weak: The dependency counts as completed with any outcome.
    """

    dependent: int
    dependency: ParentRef
    is_weak: bool = False


@dataclass(frozen=True, slots=True)
class OutsideDependent:
    """A job that another call writes, in any queue, waits for one of these nodes.

    Attributes:
        dependency: Index of the node it waits for, from 0.
        dependent: The job that waits.
    """

    dependency: int
    dependent: ParentRef


@dataclass(frozen=True, slots=True)
class Graph:
    """Jobs of one queue with their edges, or a part of such a graph, for one call.

    An edge between two parts is in both: in ``waits_for`` of the dependent's part, and in ``awaited_by`` of the
    dependency's.

    Attributes:
        nodes: The jobs, dependents before their dependencies.
        edges: The edges between these nodes.
        waits_for: The edges to dependencies elsewhere.
        awaited_by: The edges from dependents elsewhere.
    """

    nodes: Sequence[GraphNode]
    edges: Sequence[Edge] = ()
    waits_for: Sequence[OutsideDependency] = ()
    awaited_by: Sequence[OutsideDependent] = ()


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of submitting the nodes of one call.

    Attributes:
        new: Ids of the jobs that were created now; the others existed.
        pending: Notifications of existing jobs that have ended, to send once all parts are submitted.
    """

    new: tuple[str, ...]
    pending: PendingNotifications


def submit_graph(
    keys: QueueKeys,
    graph: Graph,
    now_ms: int,
    *,
    flow_id: str = "",
    record: str = "",
    held: bool = False,
) -> Operation[Submitted]:
    """Submit a graph of one queue, or a part of one, all or nothing. Existing jobs are unchanged.

    A graph of more than :data:`MOST_NODES` nodes or of several queues is submitted in parts that are ``held``, and then
    released: nothing starts before :func:`release` names it.

    Args:
        keys: The queue.
        graph: The jobs and their edges.
        now_ms: Epoch milliseconds by the caller's clock.
        flow_id: The flow's id, written to each job.
        record: The plan in the flow's record, which this queue stores; '' writes none. An existing record is kept.
        held: Whether the jobs wait for their release.
    """
    call = oq1.submit_graph(
        keys,
        flow_key=keys.flow(flow_id),
        now_ms=now_ms,
        held=held,
        flow_id=flow_id,
        record=record,
        nodes=[node.job for node in graph.nodes],
        edges=[
            # Lua counts from 1.
            oq1.GraphEdge(dependent=edge.dependent + 1, dependency=edge.dependency + 1, weak=edge.is_weak)
            for edge in graph.edges
        ],
        foreign=[
            oq1.ForeignDependency(dependent=edge.dependent + 1, member=edge.dependency.member, weak=edge.is_weak)
            for edge in graph.waits_for
        ],
        outside=[
            oq1.ForeignDependent(
                dependency=edge.dependency + 1, queue_name=edge.dependent.keys.queue, job_id=edge.dependent.job_id
            )
            for edge in graph.awaited_by
        ],
        rules=[oq1.NodeRule(place=place, rule=node.rule) for place, node in enumerate(graph.nodes, 1) if node.rule],
    )

    def read(reply: Reply) -> Submitted:
        ids, news, job_ids = reply
        named = zip(graph.nodes, texts(ids), strict=True)
        return Submitted(
            tuple(answer for node, answer in named if answer == node.job.custom_id), read_notifications(news, job_ids)
        )

    return Operation(call, read)


def release(keys: QueueKeys, job_ids: Sequence[str], now_ms: int) -> Operation[Propagated]:
    """Release held jobs: those without other dependencies start. Jobs that are not held are skipped.

    Args:
        keys: The queue.
        job_ids: At most :data:`MOST_NODES` of its jobs.
        now_ms: Epoch milliseconds by the caller's clock.
    """
    call = oq1.release_graph(keys, now_ms=now_ms, limit=MOST_CHANGES, job_ids=job_ids)
    return Operation(call, read_propagated)


def hold_nodes(keys: QueueKeys, job_ids: Sequence[str]) -> Operation[list[str]]:
    """Hold jobs that still wait for others, until :func:`release` names them.

    Args:
        keys: The queue.
        job_ids: At most :data:`MOST_NODES` of its jobs.

    Returns:
        The operation. It reads the ids of those that are held now; the others are ready, have run, or no longer exist.
    """
    return Operation(oq1.hold_nodes(keys, job_ids=job_ids), texts)


@dataclass(frozen=True, slots=True)
class Revived:
    """A job that runs again, and its dependent in another queue.

    Attributes:
        queue: The dependent's queue.
        dependent: The dependent's id.
        member: The job's name among the dependent's dependencies.
    """

    queue: str
    dependent: str
    member: str


@dataclass(frozen=True, slots=True)
class Retried:
    """The result of retrying nodes.

    Attributes:
        job_ids: The nodes that had failed, and are ready or wait now.
        revived: Their dependents in other queues, to be notified there by :func:`retry_nodes`.
        pending: Notifications of nodes that failed again.
    """

    job_ids: tuple[str, ...]
    revived: tuple[Revived, ...]
    pending: PendingNotifications


def retry_nodes(
    keys: QueueKeys,
    job_ids: Sequence[str],
    now_ms: int,
    *,
    revived: Sequence[Revived] = (),
    held: bool = False,
) -> Operation[Retried]:
    """Return failed, skipped and upstream_failed nodes to their state before they ended. Sending it twice is harmless.

    To retry nodes of several calls or queues, retry all of them ``held``, in any order; then pass the ``revived`` to
    their dependents' queues; then call :func:`release` for all.

    Args:
        keys: The queue.
        job_ids: At most :data:`MOST_NODES` of its jobs; those that have not failed are skipped.
        now_ms: Epoch milliseconds by the caller's clock.
        revived: Jobs of other queues that run again, on which jobs of this queue depend.
        held: Whether the nodes wait for their release.
    """
    call = oq1.retry_nodes(
        keys,
        now_ms=now_ms,
        held=held,
        news=[oq1.Revived(dependent=one.dependent, member=one.member) for one in revived],
        job_ids=job_ids,
    )

    def read(reply: Reply) -> Retried:
        retried, waiting, news, remaining = reply
        others = tuple(Revived(*one) for one in zip(*[iter(texts(waiting))] * 3, strict=True))
        return Retried(tuple(texts(retried)), others, read_notifications(news, remaining))

    return Operation(call, read)
