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
        job: The job, with an id of its own and no parent, as :func:`~..placement.new_job` makes it.
        rule: When it runs, by the outcomes of those it waits for; '' is ``all_success``.
    """

    job: NewJob
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """One node waits for a later one.

    Attributes:
        dependent: Place of the node that waits, from 0.
        dependency: Place of the node it waits for, which is behind the dependent.
        is_weak: The dependency counts as completed however it ends.
    """

    dependent: int
    dependency: int
    is_weak: bool = False


@dataclass(frozen=True, slots=True)
class OutsideDependency:
    """One node waits for a job that another call writes, in whatever queue.

    Attributes:
        dependent: Place of the node that waits, from 0.
        dependency: The job it waits for.
        is_weak: The dependency counts as completed however it ends.
    """

    dependent: int
    dependency: ParentRef
    is_weak: bool = False


@dataclass(frozen=True, slots=True)
class OutsideDependent:
    """A job that another call writes, in whatever queue, waits for one of these nodes.

    Attributes:
        dependency: Place of the node it waits for, from 0.
        dependent: The job that waits.
    """

    dependency: int
    dependent: ParentRef


@dataclass(frozen=True, slots=True)
class Graph:
    """Jobs of one queue and what is between them, or a part of such, for one call.

    Each edge to a job of another part is named in both parts: as what its dependent waits for in the one, and as who
    waits for its dependency in the other.

    Attributes:
        nodes: The jobs, dependents before those they wait for.
        edges: Which of them wait for which others.
        waits_for: What they wait for elsewhere.
        awaited_by: Who waits for them elsewhere.
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
        pending: Notifications to send about existing ones that have ended, once all parts are submitted.
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
    """Submit a graph of one queue, or a part of one, all or nothing; what is there already stays as it is.

    A graph of more than :data:`MOST_NODES` nodes or of several queues is submitted in parts that are ``held``, and then
    released: nothing starts before :func:`release` names it.

    Args:
        keys: The queue.
        graph: The jobs, and what is between them.
        now_ms: Epoch milliseconds by the caller's clock.
        flow_id: What the jobs belong to; written on each.
        record: What the flow's record, kept in this queue, says of its plan; '' writes none. The first one stays.
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
    """Keep jobs that still wait for others from starting, until :func:`release` names them.

    Args:
        keys: The queue.
        job_ids: At most :data:`MOST_NODES` of its jobs.

    Returns:
        The operation. It reads the ids of those that are held now; the others are ready, have run, or no longer exist.
    """
    return Operation(oq1.hold_nodes(keys, job_ids=job_ids), texts)


@dataclass(frozen=True, slots=True)
class Revived:
    """A job that is to run again, and one of another queue that waits for it.

    Attributes:
        queue: The queue of the job that waits.
        dependent: Its id.
        member: The other's name among what it waits for.
    """

    queue: str
    dependent: str
    member: str


@dataclass(frozen=True, slots=True)
class Retried:
    """The result of retrying nodes.

    Attributes:
        job_ids: Those that had failed, and are ready or wait now.
        revived: Their dependents in other queues, to be notified there by :func:`retry_nodes`.
        pending: Notifications still to send about those that failed again.
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
    """Let failed, skipped and upstream_failed nodes be what they were before they ended; sent twice, it does so once.

    Nodes of several calls or queues are all retried ``held``, in any order; then those of other queues are told of the
    ``revived``; then all are released by :func:`release`.

    Args:
        keys: The queue.
        job_ids: At most :data:`MOST_NODES` of its jobs; one that has not failed is passed over.
        now_ms: Epoch milliseconds by the caller's clock.
        revived: What jobs of this queue are to know of those of other queues that run again.
        held: Whether they wait for their release.
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
