"""Clean up after processes that died: jobs whose runs have ended, and queued or starting runs whose jobs have."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from orchestration_queue.dagster._compat import LaunchRunContext
from orchestration_queue.dagster.routing import instance_id
from orchestration_queue.dagster.runs.coordinator import QueueRunCoordinator
from orchestration_queue.dagster.runs.launcher import QueueRunLauncher
from orchestration_queue.dagster.runs.run_jobs import JobAddress
from orchestration_queue.dagster.steps.envelope import INSTANCE
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import chunks

__all__ = ["GRACE", "Swept", "sweep"]

GRACE = timedelta(minutes=1)
"""What has just changed is left alone: another process may be about to continue it."""
_PATIENCE = timedelta(seconds=15)
_LONGEST_S = 30.0
"""When a sweep leaves the rest of the runs to the next one: Dagster waits for a sensor for a minute."""
_RUNS_PER_QUERY = 500


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did.

    Attributes:
        stopped: The ids of canceled or stopped jobs, whose runs are over or deleted.
        queued: The ids of queued runs that had no job, and have one again.
        failed: The ids of queued or starting runs whose jobs had ended without them, and that have failed.
    """

    stopped: tuple[str, ...]
    queued: tuple[str, ...]
    failed: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.stopped)} jobs stopped, {len(self.queued)} runs queued again, {len(self.failed)} runs failed."
        )


def sweep(
    instance: dg.DagsterInstance,
    queues: Iterable[str] = (),
    grace: timedelta = GRACE,
    *,
    every: timedelta | None = None,
    patience: timedelta = _PATIENCE,
) -> Swept:
    """Stop jobs of runs that are over, and add the missing jobs of queued runs. Safe to repeat.

    Args:
        instance: The instance, with a :class:`QueueRunLauncher`.
        queues: Where to look for jobs, such as the queues of executors; the launcher's own is always among them.
        grace: How long ago a run must have changed. Default a minute.
        every: Leave out what was swept within this time, wherever; default sweep anyway.
        patience: How long to wait until what was stopped has ended. Default 15 s.

    Raises:
        UsageError: The instance has another launcher.
        TransportError: The server cannot be reached.
    """
    launcher = instance.run_launcher
    if not isinstance(launcher, QueueRunLauncher):
        raise UsageError(
            f"This instance has a {type(launcher).__name__}, which doesn't use queues; configure QueueRunLauncher "
            "in dagster.yaml, or set DAGSTER_HOME to the instance that has it."
        )
    before = datetime.now(UTC) - grace
    ours = instance_id(instance)
    due = {name for name in {launcher.queue, *queues} if every is None or launcher.jobs.take_turn(name, every, ours)}
    orphans = _orphans(instance, launcher, due, before)
    launcher.jobs.stop(orphans, patience.total_seconds())
    queued, failed = _wake(instance, launcher, before) if launcher.queue in due else ([], [])
    return Swept(tuple(place.job_id for place in orphans), tuple(queued), tuple(failed))


def _orphans(
    instance: dg.DagsterInstance, launcher: QueueRunLauncher, queues: Iterable[str], before: datetime
) -> list[JobAddress]:
    """Find unfinished jobs of runs that are over or deleted. A few exchanges a queue, a query for 500 runs.

    The jobs are read first: a run is stored before it has any.
    """
    places = [place for name in sorted(queues) for place in launcher.jobs.unfinished(name)]
    is_over = {
        record.dagster_run.run_id: record.dagster_run.is_finished and (record.end_time or 0.0) <= before.timestamp()
        for run_ids in chunks(sorted({_run_of(place) for place in places}), _RUNS_PER_QUERY)
        for record in instance.get_run_records(dg.RunsFilter(run_ids=list(run_ids)))
    }
    found = [place for place in places if is_over.get(_run_of(place), True)]
    # A run that is unknown here was deleted, or is another instance's. And a queue may list a job for a while that has
    # ended, or was removed.
    ours = instance_id(instance)
    return [
        place
        for place, record in zip(found, launcher.jobs.records(found), strict=True)
        if record is not None
        and not record.is_finished
        and (_run_of(place) in is_over or (ours and record.headers.get(INSTANCE) == ours))
    ]


def _run_of(place: JobAddress) -> str:
    return place.job_id.split(".", 2)[1]


def _wake(instance: dg.DagsterInstance, launcher: QueueRunLauncher, before: datetime) -> tuple[list[str], list[str]]:
    """Put queued runs without a job on their queue again, and fail those that would wait for a job that has ended.

    One exchange per thousand runs that wait as they should. Only the logs of the others are read.
    """
    is_ours = isinstance(instance.run_coordinator, QueueRunCoordinator)
    statuses = [dg.DagsterRunStatus.STARTING, *([dg.DagsterRunStatus.QUEUED] if is_ours else [])]
    ends_at = time.monotonic() + _LONGEST_S
    queued: list[str] = []
    failed: list[str] = []
    for run in launcher.without_a_job(instance.get_runs(dg.RunsFilter(statuses=statuses, updated_before=before))):
        if time.monotonic() > ends_at:
            break
        place = launcher.find_job(run)
        record = launcher.jobs.record(place)
        now = instance.get_run_by_id(run.run_id)
        if now is None or now.status is not run.status:
            continue  # it continued meanwhile: what a job's process writes is stored before the job ends
        if record is None and run.status is dg.DagsterRunStatus.QUEUED:
            launcher.launch_run(LaunchRunContext(run, None))
            queued.append(run.run_id)
        elif record is None or record.is_finished:  # and not: its worker is lost, for another will take it
            _, reason = launcher.jobs.health(place, record)
            instance.report_run_failed(run, f"The run never began, and never will: {reason}.")
            failed.append(run.run_id)
    return queued, failed
