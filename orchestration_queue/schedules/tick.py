"""One evaluation of a queue's schedules: what is due, and the call that writes it. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestration_queue.errors import PayloadError, ScheduleError
from orchestration_queue.protocol.call import Operation
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import schedule_entries
from orchestration_queue.schedules.cron import find_zone
from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.policies import Overlap
from orchestration_queue.schedules.scheduled_run import ScheduledRun, scheduled_job_id
from orchestration_queue.schedules.timing import MAX_SAFE_INTEGER

__all__ = [
    "CHECK_MS",
    "GRACE_MS",
    "NEVER_MS",
    "Awaited",
    "HeldRun",
    "TickPlan",
    "evaluate",
    "manual_job_id",
    "next_check",
    "run_now",
]

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
        return _hold_plan(run, entry, entry.planned(0, job=job_id), now_ms)
    if entry.overlap is Overlap.ALLOW:
        return TickPlan(runs=(run,))
    after = entry.planned(entry.next_run, job=job_id)
    if entry.last_job is None:
        return _hold_plan(run, entry, after, now_ms)
    held = entry.planned(entry.next_run, queued=now_ms) if entry.overlap is Overlap.QUEUE_ONE else entry
    return _hold_plan(replace(run, previous=entry.last_job, overlap=entry.overlap), held, after, now_ms)


def _hold_plan(run: ScheduledRun, held: SchedulerEntry, after: SchedulerEntry, now_ms: int) -> TickPlan:
    """Return the plan that adds the job and stores the entry, or another entry if the run is held back."""
    name = run.name
    return TickPlan(
        runs=(run,),
        updates={name: after.dump()},
        checks={name: next_check(name, after, now_ms)},
        held={name: HeldRun(held.dump(), next_check(name, held, now_ms))},
    )


GRACE_MS = 60_000
"""Minimum delay before a run counts as missed."""
_NOTIFY_MS = 5000
"""How long a worker may take to notify a repeat-after-complete schedule of its job's end."""
_MOST_AT_ONCE = 50
"""Maximum missed runs of one schedule that one tick makes up for."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """The state of the job that an entry waits for.

    Attributes:
        fate: ``open``, ``ended`` or ``gone``; empty if it is not known.
        ended_ms: When it ended, epoch ms.
    """

    fate: str = ""
    ended_ms: int = 0


def evaluate(
    entries: Mapping[str, str],
    now_ms: int,
    *,
    awaited: Mapping[str, Awaited] | None = None,
    grace_ms: int = GRACE_MS,
) -> TickPlan:
    """Decide what is due now.

    Entries that can't be read are left alone, as are those whose time zone only other machines know. Those that can
    never run again are removed.

    Args:
        entries: The stored entries, as JSON text by scheduler name.
        now_ms: Epoch milliseconds by the caller's clock.
        awaited: The states of the jobs that entries wait for, by scheduler name.
        grace_ms: How late a run may be before it counts as missed.
    """
    decisions = {
        name: _decide(_EntryCheck(name, entry, now_ms, (awaited or {}).get(name, Awaited()), grace_ms))
        if (entry := SchedulerEntry.parse(stored)) is not None
        else _TickDecision(_UNREADABLE, look_ms=NEVER_MS)
        for name, stored in entries.items()
    }
    checks = {name: decision.look_ms for name, decision in decisions.items() if decision.after is not None}
    planned = [
        run_ms
        for name, decision in decisions.items()
        if decision.after is not None
        and not decision.after.is_paused
        and (run_ms := decision.after.run_at(name)) > now_ms
    ]
    return TickPlan(
        runs=tuple(fire for decision in decisions.values() for fire in decision.runs),
        updates={name: text for name, decision in decisions.items() if (text := decision.text) is not None},
        deletions=tuple(name for name, decision in decisions.items() if decision.after is None),
        held={name: decision.held for name, decision in decisions.items() if decision.held is not None},
        misses=tuple((name, decision.missed_ms) for name, decision in decisions.items() if decision.missed_ms),
        checks=checks,
        next_due_ms=min(planned, default=None),
    )


_UNREADABLE = SchedulerEntry({})


@dataclass(frozen=True, slots=True)
class _EntryCheck:
    """What is known about an entry when it is checked."""

    name: str
    entry: SchedulerEntry
    now_ms: int
    awaited: Awaited
    grace_ms: int


@dataclass(frozen=True, slots=True)
class _TickDecision:
    """The jobs that an entry adds now, if any, and the resulting entry; None removes it."""

    after: SchedulerEntry | None
    runs: tuple[ScheduledRun, ...] = ()
    text: str | None = None
    """The entry, if it changed."""
    look_ms: int = NEVER_MS
    held: HeldRun | None = None
    missed_ms: int = 0


def _decide(check: _EntryCheck) -> _TickDecision:
    entry, now_ms = check.entry, check.now_ms
    timing, run_ms = entry.timing, entry.run_at(check.name)
    if not timing.is_complete:
        return _TickDecision(None)
    if entry.is_paused:
        # At the end of a job, workers of other clients ignore the pause.
        return _TickDecision(entry) if not entry.members.get("nextRun") else _store_decision(check, entry.paused())
    if not run_ms or run_ms > now_ms:
        return _wait(check)
    if entry.is_exhausted or timing.ends_before(entry.next_run):
        return _TickDecision(None)
    if timing.pattern and find_zone(timing.tz) is None:
        return _TickDecision(entry, look_ms=now_ms + CHECK_MS)
    try:
        return _make_due(check)
    except ScheduleError:
        return _TickDecision(None)
    except PayloadError:
        return _TickDecision(entry, look_ms=now_ms + CHECK_MS)


def _store_decision(check: _EntryCheck, after: SchedulerEntry | None, **more: Any) -> _TickDecision:
    """Return the entry to store, and when to check it next."""
    if after is None:
        return _TickDecision(None, **more)
    return _TickDecision(after, text=after.dump(), look_ms=next_check(check.name, after, check.now_ms), **more)


def _wait(check: _EntryCheck) -> _TickDecision:
    """Return the decision if nothing is due; the job that the entry waits for may have ended."""
    entry, now_ms, awaited = check.entry, check.now_ms, check.awaited
    rests = _TickDecision(entry, look_ms=next_check(check.name, entry, now_ms))
    if awaited.fate not in ("ended", "gone"):
        return rests
    if entry.queued:
        try:
            return _run_decision(check, (entry.queued,), entry.next_run or None)
        except PayloadError:
            return rests
    if not entry.waits_for_completion or now_ms - max(awaited.ended_ms, entry.last_run or 0) < _NOTIFY_MS:
        return rests
    return _store_decision(check, entry.completed(awaited.ended_ms or now_ms))


def _make_due(check: _EntryCheck) -> _TickDecision:
    """Add the runs that are due, as the policies say."""
    entry, timing, due_ms = check.entry, check.entry.timing, check.entry.next_run
    policies = entry.policies
    # A run that is late by its jitter is on time, and so are those that came due meanwhile.
    after_ms = max(due_ms, check.now_ms - policies.delay_ms(check.name, due_ms))
    following_ms = 0 if timing.repeats_after_complete else timing.following_run(due_ms, after_ms)
    if policies.missed == "skip" and after_ms - due_ms > check.grace_ms:
        latest_ms = timing.runs_until(due_ms, after_ms, 1)[-1]
        if after_ms - latest_ms > check.grace_ms:
            if timing.repeats_after_complete:
                following_ms = timing.following_run(due_ms, check.now_ms)
            after = None if following_ms is None else entry.planned(following_ms)
            return _store_decision(check, after, missed_ms=due_ms)
        return replace(_run_decision(check, (latest_ms,), following_ms), missed_ms=due_ms)
    if policies.missed == "fire_all" and not timing.repeats_after_complete:
        runs = timing.runs_until(due_ms, after_ms, policies.missed_max)
        # Each further run waits for the job of the run before it.
        at_once = 1 if policies.overlap is not Overlap.ALLOW else _MOST_AT_ONCE
        if entry.limit is not None:
            at_once = min(at_once, entry.limit - entry.iteration_count)
        following_ms = runs[at_once] if len(runs) > at_once else following_ms
        return _run_decision(check, tuple(runs[:at_once]), following_ms)
    return _run_decision(check, (due_ms,), following_ms)


def _run_decision(check: _EntryCheck, runs: Sequence[int], following_ms: int | None) -> _TickDecision:
    """Add these runs. If the previous run's job must be waited for, there is only one."""
    entry, timing, overlap = check.entry, check.entry.timing, check.entry.overlap
    is_guarded = overlap is not Overlap.ALLOW and not timing.repeats_after_complete
    made = tuple(ScheduledRun.of(check.name, entry, due_ms) for due_ms in runs)
    job = made[-1].job_id if is_guarded or timing.repeats_after_complete else None
    after = entry.fired(check.now_ms, following_ms, jobs=len(runs), job=job, queued=None)
    held = None
    if is_guarded and entry.last_job:
        made = tuple(replace(run, previous=entry.last_job, overlap=overlap) for run in made)
        held = _held_run(check, runs[-1], following_ms)
    return _store_decision(check, after, runs=made, held=held)


def _held_run(check: _EntryCheck, due_ms: int, following_ms: int | None) -> HeldRun:
    """Return the entry to store if the run must wait for the previous run's job, or is skipped because of it."""
    after: SchedulerEntry | None
    if check.entry.overlap is Overlap.QUEUE_ONE:
        after = check.entry.planned(following_ms or 0, queued=due_ms)
    else:
        after = None if following_ms is None else check.entry.planned(following_ms)
    if after is None:
        return HeldRun(None, NEVER_MS)
    return HeldRun(after.dump(), next_check(check.name, after, check.now_ms))
