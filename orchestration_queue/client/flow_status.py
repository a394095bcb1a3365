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
"""What of a job's record a :class:`FlowStatus` counts."""


@dataclass(frozen=True, slots=True)
class FlowSummary:
    """A flow as its record alone describes it, which is a few seconds behind.

    Attributes:
        id: The submission's id.
        name: What its graph is called.
        state: How far it has come.
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
        name: What its graph is called.
        state: How far it has come.
        counts: How many nodes are in which state; ``upstream_failed`` and ``skipped`` by these names, and ``gone`` for
            those whose job is not there (any more).
        started_at: When the first of them began.
        finished_at: When the last of them ended; None while it runs.
        is_paused: Whether nodes that wait for others are held.
        stopped: Why what had not finished was cancelled; None when it was not.
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
        """How many of its nodes have ended, of a hundred."""
        ended = sum(self.counts.get(name, 0) for name in ("completed", "failed", "upstream_failed", "skipped"))
        return 100 * ended / self.nodes if self.nodes else 100.0

    @property
    def seconds(self) -> float | None:
        """From the start of its first node to the end of its last; None while it runs."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


def summary(snapshot: FlowSnapshot) -> FlowSummary:
    """Return a flow as its record alone describes it."""
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
    """Return a flow by its record and those of its jobs."""
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
    """Return the chain that determined how long a flow took: its last node, what that waited for longest, and so on.

    Nodes that never ran are no part of it.
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
