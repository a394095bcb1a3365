"""A run that somebody asks for, beside those that are planned."""

from __future__ import annotations

from dataclasses import replace

from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.fires import Fire
from orchestration_queue.schedules.ids import fire_id
from orchestration_queue.schedules.plan import Held, TickPlan, next_look
from orchestration_queue.schedules.policies import Overlap

__all__ = ["id_by_hand", "run_now"]

_MARK = "-now"
"""What tells its job's id from that of a planned run of the same millisecond."""


def id_by_hand(name: str, now_ms: int) -> str:
    """The id of the job that a run by hand makes at a moment."""
    return f"{fire_id(name, now_ms, reserve=len(_MARK))}{_MARK}"


def run_now(name: str, entry: SchedulerEntry, now_ms: int) -> TickPlan:
    """Make a run now. Neither the limit nor the next planned run takes notice of it.

    The overlap policy holds for it as for any other, and counts its job as the schedule's last. Runs of a
    repeat-after-complete schedule never overlap: this one takes the place of the run that is to come next, and there is
    none while a job is under way.

    Args:
        name: The scheduler.
        entry: Its entry.
        now_ms: Epoch milliseconds; two runs by hand of one millisecond are one.

    Raises:
        PayloadError: The template's data cannot be written as JSON, or is larger than 1 MiB.
    """
    if entry.waits_for_completion:
        return TickPlan()
    planned = Fire.of(name, entry, now_ms)
    job_id = id_by_hand(name, now_ms)
    fire = replace(planned, options=planned.options.model_copy(update={"job_id": job_id}))
    if entry.timing.repeats_after_complete:
        return _noted(fire, entry, entry.planned(0, job=job_id), now_ms)
    if entry.overlap is Overlap.ALLOW:
        return TickPlan(fires=(fire,))
    after = entry.planned(entry.next_run, job=job_id)
    if entry.last_job is None:
        return _noted(fire, entry, after, now_ms)
    held = entry.planned(entry.next_run, queued=now_ms) if entry.overlap is Overlap.QUEUE_ONE else entry
    return _noted(replace(fire, previous=entry.last_job, overlap=entry.overlap), held, after, now_ms)


def _noted(fire: Fire, held: SchedulerEntry, after: SchedulerEntry, now_ms: int) -> TickPlan:
    """The plan that makes the job and stores the entry, or the other entry if the run is held back."""
    name = fire.name
    return TickPlan(
        fires=(fire,),
        updates={name: after.dump()},
        looks={name: next_look(name, after, now_ms)},
        held={name: Held(held.dump(), next_look(name, held, now_ms))},
    )
