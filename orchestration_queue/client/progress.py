"""How far a flow has come, as its events and records tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestration_queue.client.values import FlowNode, event_outcome, outcome
from orchestration_queue.errors import FlowFailedError, JobFailedError
from orchestration_queue.flows import FlowPlan, Step, kahn
from orchestration_queue.protocol.events import Event
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = ["PROGRESS_FIELDS", "TREE_FIELDS", "FlowProgress", "flow_node", "found_nodes"]

PROGRESS_FIELDS = ("state", "returnvalue", "failedReason")
"""What of a job's record says whether and how it finished."""

TREE_FIELDS = ("state", "processedOn", "finishedOn", "attemptsMade", "failedReason")
"""What of a job's record :class:`FlowNode` shows."""

_GONE = "its job is not there any more: it was removed, or not kept after it finished"


class FlowProgress:
    """What is known of a flow's nodes, and whether anything can still happen.

    Attributes:
        unfinished: Names of the nodes of which no outcome is known.
    """

    def __init__(self, plan: FlowPlan) -> None:
        self._plan = plan
        self._results: dict[str, Any] = {}
        self._failures: dict[str, str] = {}
        self.unfinished = set(plan.steps)

    def told(self, step: Step, event: Event) -> bool:
        """Learn from an event; whether the job's record has to be looked at, too."""
        if event.type == "completed":
            self._finish(step, None, event)
            return False
        return True

    def looked(self, step: Step, record: JobRecord | None) -> None:
        """Learn from a job's record."""
        if record is None or record.is_finished:
            self._finish(step, record, None)

    def _finish(self, step: Step, record: JobRecord | None, event: Event | None) -> None:
        name = step.node.name
        if name not in self.unfinished:
            return
        self.unfinished.discard(name)
        try:
            if event is not None:
                self._results[name] = event_outcome(step.keys.queue, event)
            elif record is not None:
                self._results[name] = outcome(step.keys.queue, record)
            else:
                self._failures[name] = _GONE
        except JobFailedError as error:
            self._failures[name] = error.reason

    @property
    def blocked(self) -> list[str]:
        """The unfinished nodes that wait, near or far, for a failed one."""
        blocked: dict[str, None] = {}
        for name, step in self._plan.steps.items():  # dependencies come before dependents
            if name in self.unfinished and any(dep in self._failures or dep in blocked for dep in step.node.deps):
                blocked[name] = None
        return list(blocked)

    @property
    def is_settled(self) -> bool:
        """Whether no node will finish any more."""
        return not self.unfinished or len(self.blocked) == len(self.unfinished)

    def results(self) -> dict[str, Any]:
        """What the nodes returned, by name.

        Raises:
            FlowFailedError: A node failed; the first in the flow's order is named.
        """
        for name, step in self._plan.steps.items():
            if name in self._failures:
                raise FlowFailedError(
                    step.keys.queue, step.job_id, self._failures[name], node=name, dependents=self.blocked
                )
        return {name: self._results[name] for name in self._plan.steps}


def flow_node(step: Step, record: JobRecord | None) -> FlowNode:
    """A node as it stands."""
    return _node(step.node.name, step.job_id, step.keys.queue, step.level, tuple(step.node.deps), record)


def found_nodes(
    flow_id: str,
    graph: Mapping[tuple[str, str], Sequence[tuple[str, str]]],
    records: Mapping[tuple[str, str], JobRecord | None],
) -> list[FlowNode]:
    """The nodes of a flow that was found on the server, dependencies before dependents.

    Args:
        flow_id: The submission's id.
        graph: By queue and job id, the queues and ids of the jobs it waits for.
        records: Their records, as far as they are there.
    """

    def node_name(job_id: str) -> str:
        return job_id.removeprefix(flow_id + ".")

    by_name = {node_name(job[1]): job for job in graph}
    deps = {name: tuple(node_name(job_id) for _, job_id in graph[job]) for name, job in by_name.items()}
    return [
        _node(name, by_name[name][1], by_name[name][0], depth, deps[name], records[by_name[name]])
        for depth, level in enumerate(kahn.levels(deps.items()))
        for name in level
    ]


def _node(name: str, job_id: str, queue: str, depth: int, deps: tuple[str, ...], record: JobRecord | None) -> FlowNode:
    if record is None:
        return FlowNode(name, job_id, queue, depth, deps)
    begun = record.state in (JobState.ACTIVE, JobState.COMPLETED)
    return FlowNode(
        name,
        job_id,
        queue,
        depth,
        deps,
        state=record.state,
        seconds=record.seconds,
        attempts=record.attempts_made + begun,
        failed_reason=record.failed_reason,
    )
