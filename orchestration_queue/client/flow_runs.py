"""Runs of one flow side by side: what to expect of each, and what is different about it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from statistics import median
from typing import NamedTuple

from orchestration_queue.client.flow_status import critical_path
from orchestration_queue.client.values import FlowNode

__all__ = [
    "LATE_FACTOR",
    "LEAST_EXPECTED_FROM",
    "FlowRun",
    "FlowRuns",
    "FoundRun",
    "RunNode",
    "RunsOf",
    "lay_side_by_side",
]

LATE_FACTOR = 1.5
"""A duration of more than this many times the expected one is unusual."""
LEAST_EXPECTED_FROM = 3
"""Successful runs that an expected duration needs at least."""
_NOISE_S = 0.5
"""A difference below this is no reason to mark anything."""


class RunsOf(StrEnum):
    """What runs have in common."""

    FLOW = "flow"
    """The graph's name."""
    SCHEDULER = "scheduler"
    """The scheduler that added them."""
    DAGSTER_JOB = "dagster_job"
    """The Dagster job in their jobs' headers."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run as its records describe it.

    Attributes:
        id: The flow's id, the scheduled job's id, or Dagster's run id.
        state: A flow's or a job's state; ``missed``, ``overlap`` or ``queued`` for a scheduled run without a job;
            ``gone`` if nothing says how it ended.
        created_at: When it was submitted.
        finished_at: When it ended.
        nodes: Its nodes, dependencies first; None if they were not read.
        removed: Names of nodes whose job no longer exists.
        is_flow: Whether ``id`` is a flow's.
        is_retried: Whether failed nodes were retried by hand.
        is_paused: Whether nodes are held.
        stopped: Why unfinished nodes were cancelled.
    """

    id: str
    state: str
    created_at: datetime | None
    finished_at: datetime | None
    nodes: Sequence[FlowNode] | None = None
    removed: Collection[str] = ()
    is_flow: bool = False
    is_retried: bool = False
    is_paused: bool = False
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class RunNode:
    """A node of one run.

    Attributes:
        name: The node.
        queue: Its job's queue.
        job_id: Its job.
        outcome: Its state, ``upstream_failed`` or ``skipped``; ``gone`` if its job was removed and nothing says how it
            ended.
        deps: The nodes it depends on.
        seconds: How long its latest attempt took, or has been running; None if that is unknown.
        expected: Median of this in earlier runs in which it completed; None with fewer than three.
        waited: Seconds from when it could have started to its latest start.
        started_at: When its latest attempt started.
        finished_at: When it ended.
        attempts: Attempts that have started.
        failed_reason: Why its last attempt failed.
        is_kept: Whether its job still exists.
        is_critical: Whether it is on the run's critical path.
        is_slowest: Whether it took longest of all runs, and half as long again as it usually does.
        is_newly_failing: Whether it failed after it had completed in the run before that it ended in.
    """

    name: str
    queue: str
    job_id: str
    outcome: str
    deps: tuple[str, ...] = ()
    seconds: float | None = None
    expected: float | None = None
    waited: float | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: int = 0
    failed_reason: str | None = None
    is_kept: bool = True
    is_critical: bool = False
    is_slowest: bool = False
    is_newly_failing: bool = False


@dataclass(frozen=True, slots=True)
class FlowRun:
    """One run.

    Attributes:
        id: The flow's id, the scheduled job's id, or Dagster's run id.
        state: A flow's or a job's state; ``missed``, ``overlap`` or ``queued`` for a scheduled run without a job;
            ``gone`` if nothing says how it ended.
        created_at: When it was submitted.
        finished_at: When it ended; None before.
        seconds: Seconds from its submission to its end, or until now.
        expected: Median of this in earlier runs that completed without a manual retry; None with fewer than three.
        nodes: Its nodes by name, dependencies first; None if they were not read.
        is_flow: Whether ``id`` is a flow's.
        is_late: Whether it takes, or took, more than 1.5 times as long as expected.
        is_slowest: Whether it took longest of all that completed, and half as long again as they usually do.
        is_newly_failing: Whether it failed after the run before had completed.
        is_retried: Whether failed nodes were retried by hand.
        is_paused: Whether nodes are held.
        stopped: Why unfinished nodes were cancelled.
    """

    id: str
    state: str
    created_at: datetime | None
    finished_at: datetime | None
    seconds: float | None
    expected: float | None
    nodes: Mapping[str, RunNode] | None
    is_flow: bool
    is_late: bool
    is_slowest: bool
    is_newly_failing: bool
    is_retried: bool
    is_paused: bool
    stopped: str | None


@dataclass(frozen=True, slots=True)
class FlowRuns:
    """Runs side by side.

    Attributes:
        queue: The queue whose records name them.
        of: What they have in common.
        name: The name of the flow, the scheduler or the Dagster job.
        read_at: When they were read.
        runs: The runs, newest first.
        nodes: The names of all their nodes: the newest run's, dependencies first, then those that it does not have.
        has_more: Whether the search ended before it had seen all records.
    """

    queue: str
    of: RunsOf
    name: str
    read_at: datetime
    runs: Sequence[FlowRun]
    nodes: Sequence[str]
    has_more: bool = field(default=False)

    @property
    def queues(self) -> set[str]:
        """The queues that they name."""
        return {self.queue, *(node.queue for run in self.runs for node in (run.nodes or {}).values())}

    def node(self, run: FlowRun, name: str) -> RunNode | None:
        """Return a node of a run; None if it has no such node, or its nodes were not read."""
        return (run.nodes or {}).get(name)


def lay_side_by_side(
    queue: str, of: RunsOf, name: str, found: Sequence[FoundRun], read_at: datetime, *, has_more: bool = False
) -> FlowRuns:
    """Return runs with what is expected of them, and what is different about each.

    Args:
        queue: The queue whose records name them.
        of: What they have in common.
        name: The name of the flow, the scheduler or the Dagster job.
        found: The runs, newest first.
        read_at: When they were read.
        has_more: Whether the search ended before it had seen all records.
    """
    rows = [None if run.nodes is None else {node.name: node for node in run.nodes} for run in found]
    names = list(dict.fromkeys(name for row in rows for name in row or ()))
    marks: list[dict[str, _Marks]] = [{} for _ in rows]
    for node in names:
        column = [(place, row[node]) for place, row in enumerate(rows) if row and node in row]
        for (place, _), each in zip(column, _mark_nodes([each for _, each in column], read_at), strict=True):
            marks[place][node] = each
    nodes = [None if run.nodes is None else _nodes(run, marks[place]) for place, run in enumerate(found)]
    return FlowRuns(queue, of, name, read_at, _mark_runs(found, nodes, read_at), names, has_more)


class _Marks(NamedTuple):
    """What is computed of a node: its fields as of :class:`RunNode`."""

    outcome: str
    seconds: float | None
    expected: float | None
    is_slowest: bool
    is_newly_failing: bool


def _nodes(run: FoundRun, marks: Mapping[str, _Marks]) -> dict[str, RunNode]:
    nodes = run.nodes or ()
    has_graph = any(node.deps for node in nodes)
    critical = {node.name for node in critical_path(nodes)} if has_graph else set()
    return {
        node.name: RunNode(
            node.name,
            node.queue,
            node.job_id,
            deps=node.deps,
            waited=node.waited,
            started_at=node.started_at,
            finished_at=node.finished_at,
            attempts=node.attempts,
            failed_reason=node.failed_reason,
            is_kept=node.name not in run.removed,
            is_critical=node.name in critical,
            **marks[node.name]._asdict(),
        )
        for node in nodes
    }


def _lasted(start: datetime | None, end: datetime | None, now: datetime | None) -> float | None:
    """Return the seconds between two times; clocks of different machines may differ slightly."""
    end = end or now
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())


def _mark_nodes(column: Sequence[FlowNode], read_at: datetime) -> list[_Marks]:
    """Mark a node of several runs, newest first."""
    outcomes = [node.outcome or "gone" for node in column]
    nows = [read_at if node.state == "active" else None for node in column]
    lasted = [_lasted(node.started_at, node.finished_at, now) for node, now in zip(column, nows, strict=True)]
    done = [seconds if outcome == "completed" else None for outcome, seconds in zip(outcomes, lasted, strict=True)]
    slowest = _slowest([seconds for seconds in done if seconds is not None])
    return [
        _Marks(outcome, seconds, usual, slowest is not None and success == slowest, is_new)
        for outcome, seconds, usual, success, is_new in zip(
            outcomes, lasted, _expected(done), done, _newly(outcomes), strict=True
        )
    ]


def _mark_runs(
    found: Sequence[FoundRun], nodes: Sequence[Mapping[str, RunNode] | None], read_at: datetime
) -> list[FlowRun]:
    lasted = [_lasted(run.created_at, run.finished_at, _now_of(run, read_at)) for run in found]
    plain = [
        seconds if run.state == "completed" and not run.is_retried else None
        for run, seconds in zip(found, lasted, strict=True)
    ]
    slowest, expected, fails = (
        _slowest([seconds for seconds in plain if seconds is not None]),
        _expected(plain),
        _newly([run.state for run in found]),
    )
    return [
        FlowRun(
            run.id,
            run.state,
            run.created_at,
            run.finished_at,
            lasted[place],
            expected[place],
            nodes[place],
            run.is_flow,
            is_late=_is_unusual(lasted[place], expected[place]) and not run.is_retried,
            is_slowest=slowest is not None and plain[place] == slowest,
            is_newly_failing=fails[place],
            is_retried=run.is_retried,
            is_paused=run.is_paused,
            stopped=run.stopped,
        )
        for place, run in enumerate(found)
    ]


_ENDED = frozenset({"completed", "failed", "cancelled", "missed", "overlap", "queued", "gone"})


def _now_of(run: FoundRun, read_at: datetime) -> datetime | None:
    return None if run.state in _ENDED else read_at


def _expected(values: Sequence[float | None]) -> list[float | None]:
    """Return for each run the median of the earlier ones; runs are newest first."""
    found: list[float | None] = []
    earlier: list[float] = []
    for value in reversed(values):
        found.append(median(earlier) if len(earlier) >= LEAST_EXPECTED_FROM else None)
        if value is not None:
            insort(earlier, value)  # to sort what is sorted takes the median no time
    return found[::-1]


def _slowest(values: Sequence[float]) -> float | None:
    """Return the longest duration if it is unusual."""
    if len(values) < LEAST_EXPECTED_FROM:
        return None
    most = max(values)
    return most if _is_unusual(most, median(values)) else None


def _is_unusual(seconds: float | None, usual: float | None) -> bool:
    return seconds is not None and usual is not None and seconds > max(usual * LATE_FACTOR, usual + _NOISE_S)


def _newly(states: Sequence[str]) -> list[bool]:
    """Return for each run whether it failed, and the last one before it that completed or failed had completed."""
    found: list[bool] = []
    last = ""
    for state in reversed(states):
        found.append(state == "failed" and last == "completed")
        last = state if state in ("completed", "failed") else last
    return found[::-1]
