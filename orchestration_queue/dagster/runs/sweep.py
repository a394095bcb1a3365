"""Clean up after processes that died: stop jobs whose runs have ended, and relaunch or fail runs without a job."""

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
"""How long ago a run must have changed: another process may still continue a younger one."""
_PATIENCE = timedelta(seconds=15)
_LONGEST_S = 30.0
"""After this time, a sweep leaves the other runs to the next one: Dagster waits for a sensor for a minute."""
_RUNS_PER_QUERY = 500


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep.

    Attributes:
        stopped: The ids of canceled or stopped jobs, whose runs have ended or were deleted.
        queued: The ids of queued runs that had no job, and got one again.
        failed: The ids of queued or starting runs that were failed, because their jobs had ended.
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
    """Stop jobs of runs that have ended, and add the missing jobs of queued runs. Idempotent.

    Args:
        instance: The instance, with a :class:`QueueRunLauncher`.
        queues: The queues to search for jobs, such as those of executors, in addition to the launcher's own.
        grace: How long ago a run must have changed. Default a minute.
        every: Skip queues that any process swept within this time; default sweep all.
        patience: How long to wait until stopped jobs have ended. Default 15 s.

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
    queued, failed = _repair_runs(instance, launcher, before) if launcher.queue in due else ([], [])
    return Swept(tuple(place.job_id for place in orphans), tuple(queued), tuple(failed))


def _orphans(
    instance: dg.DagsterInstance, launcher: QueueRunLauncher, queues: Iterable[str], before: datetime
) -> list[JobAddress]:
    """Find unfinished jobs of runs that have ended or were deleted. A few exchanges per queue, a query per 500 runs.

    Jobs are read first, because a run is stored before its jobs are added.
    """
    places = [place for name in sorted(queues) for place in launcher.jobs.unfinished(name)]
    is_over = {
        record.dagster_run.run_id: record.dagster_run.is_finished and (record.end_time or 0.0) <= before.timestamp()
        for run_ids in chunks(sorted({_run_of(place) for place in places}), _RUNS_PER_QUERY)
        for record in instance.get_run_records(dg.RunsFilter(run_ids=list(run_ids)))
    }
    found = [place for place in places if is_over.get(_run_of(place), True)]
    # An unknown run was deleted, or belongs to another instance. A queue may briefly list a job that has ended, or was
    # removed.
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


def _repair_runs(
    instance: dg.DagsterInstance, launcher: QueueRunLauncher, before: datetime
) -> tuple[list[str], list[str]]:
    """Launch queued runs without a job again, and fail runs whose job has ended.

    One exchange per thousand runs with a job. Only the logs of the others are read.
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
            continue  # it has continued: a job's process stores its events before the job ends
        if record is None and run.status is dg.DagsterRunStatus.QUEUED:
            launcher.launch_run(LaunchRunContext(run, None))
            queued.append(run.run_id)
        elif record is None or record.is_finished:  # if its worker is lost, another one takes the job
            _, reason = launcher.jobs.health(place, record)
            instance.report_run_failed(run, f"The run did not start before its job ended: {reason}.")
            failed.append(run.run_id)
    return queued, failed
