"""Tidying up after those who died halfway: jobs whose runs are over, and queued or starting runs whose jobs are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from orchestration_queue.dagster._compat import LaunchRunContext
from orchestration_queue.dagster.coordinator import QueueRunCoordinator
from orchestration_queue.dagster.launcher import QueueRunLauncher
from orchestration_queue.dagster.run_jobs import Place
from orchestration_queue.errors import UsageError

__all__ = ["Swept", "sweep"]

_GRACE = timedelta(minutes=1)
"""What has just changed is left alone: somebody may be about to do the next step of it."""
_PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did.

    Attributes:
        stopped: The ids of jobs whose runs are over or deleted, and that were withdrawn or stopped.
        queued: The ids of queued runs that had no job, and have one again.
        failed: The ids of queued or starting runs whose jobs had ended without them, and that have failed.
    """

    stopped: tuple[str, ...]
    queued: tuple[str, ...]
    failed: tuple[str, ...]


def sweep(instance: dg.DagsterInstance, queues: Iterable[str] = (), grace: timedelta = _GRACE) -> Swept:
    """Stop what nobody waits for, and wake what would wait for ever. Doing it twice, or in two places, does no harm.

    Args:
        instance: The instance, with a :class:`QueueRunLauncher`.
        queues: Where to look for jobs, such as the queues of executors; the launcher's own is always among them.
        grace: How long ago a run must have changed. Default a minute.

    Raises:
        UsageError: The instance has another launcher.
        TransportError: The server cannot be reached.
    """
    launcher = instance.run_launcher
    if not isinstance(launcher, QueueRunLauncher):
        raise UsageError(
            f"This instance has a {type(launcher).__name__}, which leaves nothing on queues; "
            "configure QueueRunLauncher in dagster.yaml, or set the DAGSTER_HOME that has it."
        )
    before = datetime.now(UTC) - grace
    orphans = _orphans(instance, launcher, {launcher.queue, *queues}, before)
    launcher.jobs.stop(orphans, _PATIENCE_S)
    queued, failed = _wake(instance, launcher, before)
    return Swept(tuple(place.job_id for place in orphans), tuple(queued), tuple(failed))


def _orphans(
    instance: dg.DagsterInstance, launcher: QueueRunLauncher, queues: Iterable[str], before: datetime
) -> list[Place]:
    """The unfinished jobs of runs that are over or deleted. A few trips for each queue, and one query."""
    places = [place for name in sorted(queues) for place in launcher.jobs.unfinished(name)]
    records = instance.get_run_records(dg.RunsFilter(run_ids=list({_run_of(place) for place in places})))
    wanted = {
        record.dagster_run.run_id
        for record in records
        if not record.dagster_run.is_finished or (record.end_time or 0.0) > before.timestamp()
    }
    return [place for place in places if _run_of(place) not in wanted]


def _run_of(place: Place) -> str:
    return place.job_id.split(".", 2)[1]


def _wake(
    instance: dg.DagsterInstance, launcher: QueueRunLauncher, before: datetime
) -> tuple[Sequence[str], Sequence[str]]:
    """Put queued runs without a job on their queue again, and fail those that would wait for a job that has ended."""
    is_ours = isinstance(instance.run_coordinator, QueueRunCoordinator)
    statuses = [dg.DagsterRunStatus.STARTING, *([dg.DagsterRunStatus.QUEUED] if is_ours else [])]
    queued: list[str] = []
    failed: list[str] = []
    for run in instance.get_runs(dg.RunsFilter(statuses=statuses, updated_before=before)):
        place = launcher.place_of(run)
        record = launcher.jobs.record(place)
        if record is None and run.status is dg.DagsterRunStatus.QUEUED:
            launcher.launch_run(LaunchRunContext(run, None))
            queued.append(run.run_id)
        elif record is None or record.is_finished:  # and not: its worker is lost, for another will take it
            _, reason = launcher.jobs.health(place, record)
            instance.report_run_failed(run, f"The run never began, and never will: {reason}.")
            failed.append(run.run_id)
    return queued, failed
