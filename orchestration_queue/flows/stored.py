"""A submitted flow, as its record describes it: its jobs, its state, and when to check it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from orchestration_queue.flows.plan import FlowPlan
from orchestration_queue.flows.record import FlowRecord, RecordedNode, job_id_of
from orchestration_queue.flows.submit import HELD
from orchestration_queue.options import as_timedelta
from orchestration_queue.protocol.call import Call, Operation, texts
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord, pairs, when
from orchestration_queue.states import JobState

__all__ = [
    "FlowJob",
    "FlowSnapshot",
    "FlowState",
    "StoredFlow",
    "derive_state",
    "due",
    "failing",
    "flow_ids",
    "is_removed",
    "outcome_of",
    "read_flow",
    "removed_record",
    "schedule_check",
]


class FlowState(StrEnum):
    """The state of a flow as a whole."""

    SUBMITTING = "submitting"
    """Parts of it may be missing; none of its nodes starts yet."""
    RUNNING = "running"
    """Not all of its nodes have ended."""
    COMPLETED = "completed"
    """All nodes have ended, and none has failed; some may have been skipped."""
    FAILED = "failed"
    """All nodes have ended, and at least one has failed."""
    CANCELLED = "cancelled"
    """It was cancelled before all nodes had ended."""

    @property
    def is_final(self) -> bool:
        """Whether all nodes have ended."""
        return self not in (FlowState.SUBMITTING, FlowState.RUNNING)


@dataclass(frozen=True, slots=True)
class FlowJob:
    """A node of a flow, with its job.

    Attributes:
        node: The node in the flow's record.
        keys: Its job's queue.
        job_id: Its job's id.
        depth: 0 without dependencies; otherwise one more than its deepest dependency.
    """

    node: RecordedNode
    keys: QueueKeys
    job_id: str
    depth: int

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A flow's graph, as jobs.

    Attributes:
        id: The submission's id.
        keys: The flow's own queue, which stores its record.
        record: What was submitted.
        jobs: The jobs by node, dependencies before dependents.
    """

    id: str
    keys: QueueKeys
    record: FlowRecord
    jobs: Mapping[str, FlowJob]

    @classmethod
    def of(cls, flow_id: str, keys: QueueKeys, record: FlowRecord) -> StoredFlow:
        """Return the flow of a record."""
        jobs: dict[str, FlowJob] = {}
        for name, node in record.nodes.items():
            depth = max((jobs[dep].depth + 1 for dep in node.waits_for), default=0)
            jobs[name] = FlowJob(node, QueueKeys(node.queue, keys.prefix), job_id_of(flow_id, name), depth)
        return cls(flow_id, keys, record, jobs)

    @classmethod
    def planned(cls, plan: FlowPlan) -> StoredFlow:
        """Return the flow of a plan."""
        jobs = {
            name: FlowJob(node, plan.nodes[name].keys, plan.nodes[name].job_id, plan.nodes[name].level)
            for name, node in plan.record.nodes.items()
        }
        return cls(plan.flow_id, plan.keys, plan.record, jobs)

    def by_queue(self, jobs: Sequence[FlowJob]) -> dict[QueueKeys, list[str]]:
        """Ids of jobs by queue."""
        found: dict[QueueKeys, list[str]] = {}
        for job in jobs:
            found.setdefault(job.keys, []).append(job.job_id)
        return found


@dataclass(frozen=True, slots=True)
class FlowSnapshot:
    """What the server stores about a flow as a whole.

    Attributes:
        flow: The flow.
        state: As last recorded, which can be a few seconds after a change.
        created_at: When it was submitted.
        finished_at: When the last of its nodes ended, if that was recorded.
        held_ms: Since when jobs may be held, from its submission or a retry, epoch ms; None if none is. Submissions
            don't store the time, which is no earlier than ``created_at``.
        is_paused: Whether nodes that wait for others are held.
        is_removing: Whether it is being removed.
        stopped: Why unfinished nodes were cancelled: the caller's reason, ``timeout`` or ``fail_fast``; None if they
            were not.
        was_retried: Whether failed nodes were ever retried.
    """

    flow: StoredFlow
    state: FlowState
    created_at: datetime | None
    finished_at: datetime | None
    held_ms: int | None
    is_paused: bool
    is_removing: bool
    stopped: str | None
    was_retried: bool = False

    @property
    def is_held(self) -> bool:
        """Whether jobs may be held from its submission or a retry."""
        return self.held_ms is not None

    @property
    def deadline_ms(self) -> int | None:
        """When its timeout expires, epoch ms."""
        timeout = self.flow.record.options.timeout
        return None if timeout is None or self.created_at is None else epoch_ms(self.created_at + as_timedelta(timeout))

    @property
    def is_cancelled(self) -> bool:
        """Whether a caller cancelled it, not its own options."""
        return self.stopped is not None and self.stopped not in (TIMEOUT, FAIL_FAST)


RETRIED = "retried"
"""The field of a flow's record that says that it was retried."""
TIMEOUT, FAIL_FAST = "timeout", "fail_fast"
"""Reasons for which a flow's own options cancel unfinished nodes."""


def epoch_ms(at: datetime) -> int:
    """Return a time in epoch milliseconds."""
    return round(at.timestamp() * 1000)


def read_flow(keys: QueueKeys, flow_id: str) -> Operation[FlowSnapshot | None]:
    """Return what is stored about a flow; None without a record. One command."""

    def read(reply: list[bytes]) -> FlowSnapshot | None:
        fields = pairs(reply)
        if "plan" not in fields:
            return None
        return FlowSnapshot(
            StoredFlow.of(flow_id, keys, FlowRecord.read(fields["plan"])),
            FlowState(fields.get("state", FlowState.RUNNING)),
            when(fields.get("createdAt")),
            when(fields.get("finishedAt")),
            held_ms=int(fields[HELD]) if HELD in fields else None,
            is_paused="paused" in fields,
            is_removing="removing" in fields,
            stopped=fields.get("stopped"),
            was_retried=RETRIED in fields,
        )

    return Operation(Call("HGETALL", (keys.flow(flow_id),)), read)


def flow_ids(keys: QueueKeys, start: int, end: int) -> Operation[list[str]]:
    """Return the ids of the queue's flows, newest first, ``start`` to ``end`` inclusive."""
    return Operation(Call("ZREVRANGE", (keys.flows,), (start, end)), texts)


def due(keys: QueueKeys, now_ms: int, most: int) -> Operation[list[str]]:
    """Return the ids of the flows that are due for a check, longest overdue first. One command."""
    return Operation(Call("ZRANGEBYSCORE", (keys.flows_due,), ("-inf", now_ms, "LIMIT", 0, most)), texts)


def schedule_check(keys: QueueKeys, flow_id: str, at_ms: int) -> Call:
    """Record when a flow is due for its next check."""
    return Call("ZADD", (keys.flows_due,), (at_ms, flow_id))


def derive_state(snapshot: FlowSnapshot, records: Mapping[str, JobRecord | None]) -> FlowState:
    """Return the state of a flow: the one judge of it, which every reader asks.

    Callbacks must end, but don't affect the outcome of the flow.

    Args:
        snapshot: The flow.
        records: What is known of its nodes, from :func:`~orchestration_queue.flows.control.survey`: None for one whose
            job is gone without a trace of how it ended, which never counts as a success.
    """
    if snapshot.state is FlowState.SUBMITTING:
        return snapshot.state
    if not all(record is None or record.is_finished for record in records.values()):
        return FlowState.RUNNING
    outcomes = {name: outcome_of(record) for name, record in records.items()}
    if not failing(snapshot.flow, outcomes):
        return FlowState.COMPLETED
    return FlowState.CANCELLED if snapshot.is_cancelled else FlowState.FAILED


def failing(flow: StoredFlow, outcomes: Mapping[str, str]) -> list[str]:
    """Return names of nodes with whose outcomes the flow can't complete, in the flow's order. Callbacks don't count."""
    callbacks = flow.record.options.callbacks
    return [name for name in flow.jobs if name not in callbacks and outcomes.get(name) in _FAILURES]


_FAILURES = frozenset({"failed", "upstream_failed", "gone"})
_UNRUN = {"upstream_failed": "upstream failed", "skipped": "skipped"}
_REMOVED = "oq:removed"
"""A field that no stored record has."""


def removed_record(job_id: str, outcome: str, finished_ms: str = "", reason: str = "") -> JobRecord:
    """Return what is known of a job that was removed after it ended."""
    fields = {"state": "completed" if outcome == "completed" else "failed", "finishedOn": finished_ms, _REMOVED: "1"}
    if fields["state"] == "failed":
        fields |= {"failedReason": _UNRUN.get(outcome, reason), "outcome": outcome}
    return JobRecord(job_id, fields)


def is_removed(record: JobRecord) -> bool:
    """Whether only the outcome of this job is known: it was removed."""
    return _REMOVED in record.fields


def outcome_of(record: JobRecord | None) -> str:
    """Return a job's state, or ``upstream_failed`` or ``skipped`` if it ended as such and did not run after all.

    ``gone`` for a job that does not exist, and of which nothing says how it ended.
    """
    if record is None:
        return "gone"
    outcome = record.fields.get("outcome", "")
    unrun = record.state is JobState.FAILED and outcome in _UNRUN and _UNRUN[outcome] == record.failed_reason
    return outcome if unrun else str(record.state)


def retention_age(snapshot: FlowSnapshot) -> timedelta | None:
    """Return how long the flow is kept after its end; None keeps it forever."""
    retention = snapshot.flow.record.options.retention
    return as_timedelta(retention.age) if retention else None
