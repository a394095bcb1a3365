"""Convert qless jobs, recurring jobs and groups of dependent jobs to this package's."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from orchestration_queue.client.values import encode_data
from orchestration_queue.errors import UsageError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import MAX_PRIORITY, JobOptions
from orchestration_queue.protocol.operations.additions import NewJob
from orchestration_queue.schedules import Every, JobTemplate, MissedRuns
from orchestration_queue.wires.identity import own_id
from orchestration_queue.wires.qless.records import QlessJob, QlessRecurringJob, moment

__all__ = ["TAGS_HEADER", "PlacedJob", "QlessMoved", "groups", "own_flow", "own_job", "own_recurring"]

TAGS_HEADER = "qless-tags"
"""The header that keeps a job's tags, as a JSON array."""

_MOST_MISSED = 1000


@dataclass(slots=True)
class QlessMoved:
    """The result of a move.

    Attributes:
        jobs: How many ready jobs were moved.
        delayed: How many delayed jobs.
        dependent: How many jobs that wait for others, or that others wait for.
        flows: How many flows these became.
        schedules: How many recurring jobs.
        left: How many were not moved, by the reason.
    """

    jobs: int = 0
    delayed: int = 0
    dependent: int = 0
    flows: int = 0
    schedules: int = 0
    left: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job that can be moved, and the time in seconds until which it waits; 0 for none."""

    job: QlessJob
    due: float = 0

    @property
    def linked(self) -> frozenset[str]:
        """The jobs that it waits for, and those that wait for it."""
        return frozenset((*self.job.dependencies, *self.job.dependents))


def own_job(placed: PlacedJob, now: float) -> NewJob:
    """Convert a job.

    Raises:
        UsageError: Our protocol can't represent it.
    """
    job = placed.job
    encode_data(job.klass, job.data)
    delay = timedelta(seconds=max(0.0, placed.due - now))
    options = _options(job.priority, job.remaining, job.tags, job_id=own_id(job.jid), delay=delay)
    return NewJob(job.klass, job.data, options)


def own_recurring(job: QlessRecurringJob, due: float) -> tuple[Every, JobTemplate]:
    """Convert a recurring job to a schedule and its template.

    Raises:
        UsageError: Our schedules can't represent it.
    """
    most = min(job.backlog + 1, _MOST_MISSED) if job.backlog else _MOST_MISSED
    timing = Every(timedelta(seconds=job.interval), start=moment(due), missed=MissedRuns.fire_all(most))
    return timing, JobTemplate(name=job.klass, data=job.data, options=_options(job.priority, job.retries, job.tags))


def groups(placed: Mapping[str, PlacedJob]) -> list[list[PlacedJob]]:
    """Return the jobs in groups that wait for each other, directly or indirectly."""
    found, seen = [], set[str]()
    for jid in placed:
        if jid in seen or not placed[jid].linked:
            continue
        group, ahead = [], [jid]
        seen.add(jid)
        while ahead:
            group.append(placed[ahead.pop()])
            found_now = {other for other in group[-1].linked if other in placed and other not in seen}
            seen |= found_now
            ahead += sorted(found_now)
        found.append(group)
    return found


def own_flow(group: Iterable[PlacedJob], queue: str, live: frozenset[str], now: float) -> tuple[str, Dag]:
    """Convert jobs that wait for each other to a flow; return its id, too.

    Args:
        group: The jobs.
        queue: Our queue.
        live: Ids of jobs outside of the group that have not ended.
        now: The present time.

    Raises:
        UsageError: One of them waits for a job that is not in the group, or our flows can't represent it.
    """
    jobs = sorted(group, key=lambda placed: placed.job.jid)
    names = {placed.job.jid for placed in jobs}
    nodes = []
    for placed in jobs:
        if placed.linked & live:
            raise UsageError("it is linked to a job that is running, has failed or is in another queue")
        deps = [own_id(other) for other in placed.job.dependencies if other in names]
        if deps and placed.due > now:
            raise UsageError("it waits for other jobs and for its time, but a flow's node can't wait for both")
        job = placed.job
        encode_data(job.klass, job.data)
        delay = timedelta(seconds=max(0.0, placed.due - now))
        options = _options(0 if deps else job.priority, job.remaining, job.tags, delay=delay)
        nodes.append(Node(own_id(job.jid), job.klass, data=job.data, options=options, deps=deps))
    digest = hashlib.sha256("\n".join(placed.job.jid for placed in jobs).encode()).hexdigest()
    return f"qless-{digest[:32]}", Dag("qless", nodes, queue)


def _options(priority: float, retries: int, tags: Iterable[str], **more: Any) -> JobOptions:
    """Return how a job is placed and retried.

    The most urgent priority is 1 here. Jobs without one run last, as those with 0 do in qless.
    """
    urgency = MAX_PRIORITY - math.ceil(min(priority, MAX_PRIORITY - 1)) if priority > 0 else 0
    headers = {TAGS_HEADER: json.dumps(list(tags))} if tags else {}
    return JobOptions(priority=urgency, attempts=max(1, retries + 1), headers=headers, **more)
