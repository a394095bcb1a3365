"""Manual runs of schedules."""

from __future__ import annotations

from dataclasses import replace

from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.ids import scheduled_job_id
from orchestration_queue.schedules.plan import HeldRun, TickPlan, next_check
from orchestration_queue.schedules.policies import Overlap
from orchestration_queue.schedules.scheduled_run import ScheduledRun

__all__ = ["manual_job_id", "run_now"]

_MARK = "-now"
"""Distinguishes its job's id from that of a scheduled run at the same millisecond."""


def manual_job_id(name: str, now_ms: int) -> str:
    """Return the id of the job for a manual run at this time."""
    return f"{scheduled_job_id(name, now_ms, reserve=len(_MARK))}{_MARK}"


def run_now(name: str, entry: SchedulerEntry, now_ms: int) -> TickPlan:
    """Run a schedule now. Its limit and its next planned run are unaffected.

    The overlap policy applies, and counts its job as the schedule's last. Runs of a repeat-after-complete schedule
    never overlap: this one replaces the next run, and is not possible while a job is unfinished.

    Args:
        name: The scheduler.
        entry: Its entry.
        now_ms: Epoch milliseconds; two manual runs at the same millisecond are one.

    Raises:
        PayloadError: The template's data is not JSON, or larger than 1 MiB.
    """
    if entry.waits_for_completion:
        return TickPlan()
    planned = ScheduledRun.of(name, entry, now_ms)
    job_id = manual_job_id(name, now_ms)
    run = replace(planned, options=planned.options.model_copy(update={"job_id": job_id}))
    if entry.timing.repeats_after_complete:
        return _noted(run, entry, entry.planned(0, job=job_id), now_ms)
    if entry.overlap is Overlap.ALLOW:
        return TickPlan(runs=(run,))
    after = entry.planned(entry.next_run, job=job_id)
    if entry.last_job is None:
        return _noted(run, entry, after, now_ms)
    held = entry.planned(entry.next_run, queued=now_ms) if entry.overlap is Overlap.QUEUE_ONE else entry
    return _noted(replace(run, previous=entry.last_job, overlap=entry.overlap), held, after, now_ms)


def _noted(run: ScheduledRun, held: SchedulerEntry, after: SchedulerEntry, now_ms: int) -> TickPlan:
    """Return the plan that adds the job and stores the entry, or another entry if the run is held back."""
    name = run.name
    return TickPlan(
        runs=(run,),
        updates={name: after.dump()},
        checks={name: next_check(name, after, now_ms)},
        held={name: HeldRun(held.dump(), next_check(name, held, now_ms))},
    )
