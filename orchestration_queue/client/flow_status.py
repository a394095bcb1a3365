"""The status of a flow and its nodes, from its events and records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from orchestration_queue.client.values import FlowNode, event_outcome
from orchestration_queue.errors import FlowFailedError
from orchestration_queue.flows import PlannedNode, TriggerRule, kahn
from orchestration_queue.flows.elements import element_names, maps
from orchestration_queue.flows.stored import (
    FlowJob,
    FlowSnapshot,
    FlowState,
    StoredFlow,
    derive_state,
    failing,
    is_removed,
    outcome_of,
)
from orchestration_queue.protocol.call import Conversation
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = [
    "PROGRESS_FIELDS",
    "STATUS_FIELDS",
    "TREE_FIELDS",
    "FlowProgress",
    "FlowStatus",
    "FlowSummary",
    "add_histories",
    "critical_path",
    "flow_nodes",
    "flow_status",
    "found_nodes",
    "node_of",
    "overdue",
    "summary",
]

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
            job does not exist and may not have completed.
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
    counts = Counter(map(outcome_of, records.values()))
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
    # Nodes are listed after their dependencies, which may have ended in the same millisecond.
    ran = {
        node.name: (node.finished_at, place, node)
        for place, node in enumerate(nodes)
        if node.finished_at is not None and node.started_at is not None
    }

    def last(names: Sequence[str]) -> FlowNode | None:
        found = [ran[name] for name in names if name in ran]
        return max(found)[2] if found else None

    path: list[FlowNode] = []
    node = last(list(ran))
    while node is not None:
        path.append(node)
        node = last(node.deps)
    return path[::-1]


PROGRESS_FIELDS = ("state", "outcome", "returnvalue", "failedReason")
"""Fields of a job's record that say whether and how it finished."""

_MOST_HISTORIES = 200
TREE_FIELDS = ("state", "outcome", "timestamp", "processedOn", "finishedOn", "attemptsMade", "failedReason")
"""Fields of a job's record that :class:`FlowNode` needs."""

_GONE = "its job is gone, and nothing says that it completed"


class FlowProgress:
    """What is known about a flow's nodes, and whether any can still change.

    Attributes:
        unfinished: Names of the nodes whose outcome is unknown.
    """

    def __init__(self, flow: StoredFlow) -> None:
        self._flow = flow
        self._outcomes: dict[str, str] = {}
        self._results: dict[str, Any] = {}
        self._reasons: dict[str, str] = {}
        self.unfinished = set(flow.jobs)

    def apply_event(self, job: FlowJob | PlannedNode, event: Event) -> bool:
        """Apply an event; return whether the job's record must be read as well."""
        if event.type == "completed":
            self._finish(job, None, event)
            return False
        return True

    def apply_record(self, job: FlowJob | PlannedNode, record: JobRecord | None) -> None:
        """Apply what is known of a job: None if its record is gone, and nothing says how it ended."""
        if record is None or record.is_finished:
            self._finish(job, record, None)

    def _finish(self, job: FlowJob | PlannedNode, record: JobRecord | None, event: Event | None) -> None:
        name = job.node.name
        if name not in self.unfinished:
            return
        self.unfinished.discard(name)
        self._outcomes[name] = "completed" if event is not None else outcome_of(record)
        if event is not None:
            self._results[name] = event_outcome(job.keys.queue, event)
        elif record is None:
            self._reasons[name] = _GONE
        elif record.state is JobState.FAILED:
            self._reasons[name] = record.failed_reason or "it left no reason"
        elif not is_removed(record):
            self._results[name] = record.result

    @property
    def blocked(self) -> list[str]:
        """The unfinished nodes that depend, directly or not, on the success of a failed one."""
        blocked: dict[str, None] = {}
        unmet = {name for name, how in self._outcomes.items() if how != "completed"}
        for name, job in self._flow.jobs.items():  # dependencies come before dependents
            if name not in self.unfinished or job.node.rule is not TriggerRule.ALL_SUCCESS:
                continue
            if any(dep in unmet or dep in blocked for dep in job.node.deps):
                blocked[name] = None
        return list(blocked)

    @property
    def is_settled(self) -> bool:
        """Whether no more nodes will finish."""
        return not self.unfinished or len(self.blocked) == len(self.unfinished)

    def results(self) -> dict[str, Any]:
        """Return the nodes' results, by name, without skipped nodes, and those whose results were not kept.

        Raises:
            FlowFailedError: The flow did not complete; the error names the first node that failed, in the flow's order.
        """
        jobs, outcomes = self._flow.jobs, self._outcomes
        if failed := failing(self._flow, outcomes):
            name = next((name for name in failed if outcomes[name] != "upstream_failed"), failed[0])
            in_vain = {
                *self.blocked,
                *(other for other, how in outcomes.items() if how in ("upstream_failed", "skipped")),
            }
            raise FlowFailedError(
                jobs[name].keys.queue,
                jobs[name].job_id,
                self._reasons[name],
                node=name,
                dependents=[other for other in jobs if other in in_vain],
            )
        return {name: self._results[name] for name in jobs if name in self._results}


def flow_nodes(flow: StoredFlow, records: Mapping[str, JobRecord | None], names: Iterable[str]) -> list[FlowNode]:
    """Return the current state of some nodes of a flow.

    Args:
        flow: The flow, with the elements of mapped nodes.
        records: The records of these nodes, and of all their dependencies.
        names: Which nodes, in which order.
    """
    return [_node_of(flow.jobs[name], records) for name in names]


def _node_of(job: FlowJob, records: Mapping[str, JobRecord | None]) -> FlowNode:
    elements = element_names(job) if maps(job) else None
    inner = set(elements or ())
    node = node_of(
        job.name,
        job.job_id,
        job.keys.queue,
        job.depth,
        tuple(name for name in job.node.waits_for if name not in inner),
        records[job.name],
        (records[dep] for dep in job.node.waits_for),
        job.node.rule,
    )
    if elements is None:
        return node
    ends = Counter(outcome_of(records[name]) for name in elements)
    return replace(node, elements=dict(ends))


def found_nodes(
    flow_id: str,
    graph: Mapping[tuple[str, str], Sequence[tuple[str, str]]],
    records: Mapping[tuple[str, str], JobRecord | None],
) -> list[FlowNode]:
    """Return the nodes of a flow that was found on the server, dependencies before dependents.

    Args:
        flow_id: The submission's id.
        graph: By queue and job id, the queues and ids of the jobs it waits for.
        records: Their records, as far as they exist.
    """

    def node_name(job_id: str) -> str:
        return job_id.removeprefix(flow_id + ".")

    by_name = {node_name(job[1]): job for job in graph}
    deps = {name: tuple(node_name(job_id) for _, job_id in graph[job]) for name, job in by_name.items()}
    return [
        node_of(
            name,
            by_name[name][1],
            by_name[name][0],
            depth,
            deps[name],
            records[by_name[name]],
            (records[by_name[dep]] for dep in deps[name]),
        )
        for depth, level in enumerate(kahn.levels(deps.items()))
        for name in level
    ]


def node_of(
    name: str,
    job_id: str,
    queue: str,
    depth: int,
    deps: tuple[str, ...],
    record: JobRecord | None,
    waited_for: Iterable[JobRecord | None],
    rule: str = "all_success",
) -> FlowNode:
    """Return a node in the state that its job's record describes, given those of the jobs that it waits for."""
    if record is None:
        return FlowNode(name, job_id, queue, depth, deps, rule=rule)
    return FlowNode(
        name,
        job_id,
        queue,
        depth,
        deps,
        state=record.state,
        seconds=record.seconds,
        attempts=record.attempts,
        failed_reason=record.failed_reason,
        outcome=outcome_of(record),
        waited=_measure_wait(record, [dep.finished_at for dep in waited_for if dep is not None]),
        started_at=record.latest_start,
        finished_at=record.finished_at,
        rule=rule,
    )


def add_histories(nodes: Iterable[tuple[QueueKeys, dict[str, JobRecord | None], str]]) -> Conversation[None]:
    """Add the histories of the first 200 failed jobs, in which the start of the failed attempt is."""
    failed = [
        (keys, known, name, record)
        for keys, known, name in nodes
        if (record := known[name]) is not None and record.state is JobState.FAILED and not is_removed(record)
    ][:_MOST_HISTORIES]
    if not failed:
        return
    histories = yield from job_records.jobs([(keys, record.id) for keys, _, _, record in failed], ("history",))
    for (_, known, name, record), history in zip(failed, histories, strict=True):
        if history is not None:
            known[name] = JobRecord(record.id, {**record.fields, **history.fields})


def _measure_wait(record: JobRecord, ends: Sequence[datetime | None]) -> float | None:
    """Return how many seconds a job could have run before it did; clocks of different machines may differ slightly."""
    ready = max((end for end in ends if end is not None), default=record.added_at)
    if record.latest_start is None or ready is None:
        return None
    return max(0.0, (record.latest_start - ready).total_seconds())


def overdue(flow_id: str, left: Sequence[tuple[FlowJob, JobRecord | None]], seconds: float | None) -> TimeoutError:
    """Return the error of a wait that timed out before these nodes had ended."""
    names = [job.name for job, _ in left]
    named = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    ready = [job for job, record in left if record is not None and record.state is JobState.WAITING]
    advice = "wait longer, or check that workers serve its queues"
    if ready:
        advice = (
            f"{ready[0].name!r} could start and waits for a worker of queue {ready[0].keys.queue!r}; "
            "start one, or wait longer"
        )
    return TimeoutError(f"Flow {flow_id!r} has {len(names)} unfinished nodes after {seconds:g} s ({named}); {advice}.")
