"""The status of a flow as a whole, and what determined its duration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestration_queue.client.values import FlowNode
from orchestration_queue.flows.stored import FlowSnapshot, FlowState, derive_state, outcome_of
from orchestration_queue.protocol.record import JobRecord

__all__ = ["STATUS_FIELDS", "FlowStatus", "FlowSummary", "critical_path", "flow_status", "summary"]

STATUS_FIELDS = ("state", "outcome", "failedReason", "processedOn", "finishedOn")
"""Fields of a job's record that a :class:`FlowStatus` needs."""


@dataclass(frozen=True, slots=True)
class FlowSummary:
    """A flow as its record describes it, which can be a few seconds old.

    Attributes:
        id: The submission's id.
        name: The graph's name.
        state: Its state.
        nodes: How many nodes it has.
        created_at: When it was submitted.
        finished_at: When the last of its nodes ended; None before.
        is_paused: Whether nodes that wait for others are held.
    """

    id: str
    name: str
    state: FlowState
    nodes: int
    created_at: datetime | None
    finished_at: datetime | None
    is_paused: bool


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """The status of a flow.

    Attributes:
        id: The submission's id.
        name: The graph's name.
        state: Its state.
        counts: How many nodes are in each state, with ``upstream_failed`` and ``skipped``, and ``gone`` for those whose
            job does not exist.
        started_at: When the first of them started.
        finished_at: When the last of them ended; None while it runs.
        is_paused: Whether nodes that wait for others are held.
        stopped: Why the unfinished nodes were cancelled; None if they were not.
    """

    id: str
    name: str
    state: FlowState
    counts: Mapping[str, int]
    started_at: datetime | None
    finished_at: datetime | None
    is_paused: bool
    stopped: str | None

    @property
    def nodes(self) -> int:
        """How many nodes it has."""
        return sum(self.counts.values())

    @property
    def percent(self) -> float:
        """Percentage of its nodes that have ended."""
        ended = sum(self.counts.get(name, 0) for name in ("completed", "failed", "upstream_failed", "skipped"))
        return 100 * ended / self.nodes if self.nodes else 100.0

    @property
    def seconds(self) -> float | None:
        """Seconds from the start of its first node to the end of its last; None while it runs."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


def summary(snapshot: FlowSnapshot) -> FlowSummary:
    """Return a flow as its record describes it."""
    record = snapshot.flow.record
    return FlowSummary(
        snapshot.flow.id,
        record.name,
        snapshot.state,
        len(record.nodes),
        snapshot.created_at,
        snapshot.finished_at,
        snapshot.is_paused,
    )


def flow_status(snapshot: FlowSnapshot, records: Mapping[str, JobRecord | None]) -> FlowStatus:
    """Return a flow's status from its record and those of its jobs."""
    state = derive_state(snapshot, records)
    there = [record for record in records.values() if record is not None]
    counts = Counter("gone" if record is None else outcome_of(record) for record in records.values())
    ends = [record.finished_at for record in there if record.finished_at is not None]
    return FlowStatus(
        snapshot.flow.id,
        snapshot.flow.record.name,
        state,
        dict(counts),
        min((record.started_at for record in there if record.started_at is not None), default=None),
        max(ends, default=snapshot.finished_at) if state.is_final else None,
        snapshot.is_paused,
        snapshot.stopped,
    )


def critical_path(nodes: Sequence[FlowNode]) -> list[FlowNode]:
    """Return the chain that determined a flow's duration: its last node, the dependency that ended last, and so on.

    Nodes that never ran are excluded.
    """
    ran = {node.name: node for node in nodes if node.finished_at is not None and node.started_at is not None}

    def last(names: Sequence[str]) -> FlowNode | None:
        return max((ran[name] for name in names if name in ran), key=lambda node: str(node.finished_at), default=None)

    path: list[FlowNode] = []
    node = last(list(ran))
    while node is not None:
        path.append(node)
        node = last(node.deps)
    return path[::-1]
