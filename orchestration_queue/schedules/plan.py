"""What one evaluation of schedules decides, and the call that writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestration_queue.protocol.call import Operation
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import schedule_entries
from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.policies import Overlap
from orchestration_queue.schedules.scheduled_run import ScheduledRun, scheduled_job_id
from orchestration_queue.schedules.timing import MAX_SAFE_INTEGER

__all__ = ["CHECK_MS", "NEVER_MS", "HeldRun", "TickPlan", "manual_job_id", "next_check", "run_now"]

_MARK = "-now"
"""Distinguishes the id of a manual run's job from that of a scheduled run of the same millisecond."""

CHECK_MS = 15_000
"""How often to check an entry that waits for something without a notification."""
NEVER_MS = MAX_SAFE_INTEGER


def next_check(name: str, entry: SchedulerEntry, now_ms: int) -> int:
    """Return when to check an up-to-date entry next, epoch ms."""
    if entry.is_paused:
        return NEVER_MS
    planned_ms = entry.run_at(name) or NEVER_MS
    waits = entry.queued or entry.waits_for_completion
    return min(planned_ms, now_ms + CHECK_MS) if waits else planned_ms


@dataclass(frozen=True, slots=True)
class HeldRun:
    """The entry to store if its run is held back because the previous run's job has not ended.

    Attributes:
        text: The entry as JSON text; None removes it.
        look_ms: When to check it again, epoch ms.
    """

    text: str | None
    look_ms: int


@dataclass(frozen=True, slots=True)
class TickPlan:
    """What one tick does, all or nothing.

    Attributes:
        runs: Jobs to add.
        updates: Entries to store, as JSON text by name.
        deletions: Entries to remove.
        held: What to store instead if the run of an entry is held back.
        misses: Runs that are skipped because they are late: scheduler and due time.
        checks: When each remaining entry must be checked again, epoch ms.
        next_due_ms: When the next run after this tick is due, epoch ms; None if none is planned.
    """

    runs: tuple[ScheduledRun, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    deletions: tuple[str, ...] = ()
    held: Mapping[str, HeldRun] = field(default_factory=dict)
    misses: tuple[tuple[str, int], ...] = ()
    checks: Mapping[str, int] = field(default_factory=dict)
    next_due_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.runs or self.updates or self.deletions or self.misses)

    def write(self, keys: QueueKeys, token: str, now_ms: int) -> Operation[list[str] | None]:
        """Return the call that writes the plan while this token holds the lock; see :func:`scheduling.fire`."""
        runs = [fire.written(now_ms) for fire in self.runs]
        return schedule_entries.fire(keys, token, now_ms, runs, self._entry_updates(), self.misses)

    def _entry_updates(self) -> list[oq1.EntryUpdate]:
        updates = [self._entry_update(name, schedule_entries.DROP, 0) for name in self.deletions]
        return updates + [self._entry_update(name, self.updates.get(name, ""), at) for name, at in self.checks.items()]

    def _entry_update(self, name: str, entry: str, look_ms: int) -> oq1.EntryUpdate:
        held = self.held.get(name)
        if held is None:
            return oq1.EntryUpdate(name=name, entry=entry, look_ms=look_ms)
        held_entry = schedule_entries.DROP if held.text is None else held.text
        return oq1.EntryUpdate(name, entry, look_ms, held_entry, held.look_ms)


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
