"""One look at all schedules of a queue: what is due, and what to write. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from orchestration_queue.errors import PayloadError, ScheduleError
from orchestration_queue.options import MAX_PRIORITY, JobOptions
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.schedules.cron import find_zone
from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.ids import fire_id
from orchestration_queue.schedules.policies import Overlap
from orchestration_queue.schedules.timing import MAX_SAFE_INTEGER, whole

__all__ = [
    "CHECK_MS",
    "GRACE_MS",
    "NEVER_MS",
    "Awaited",
    "Fire",
    "Held",
    "TickPlan",
    "evaluate",
    "run_now",
]

GRACE_MS = 60_000
"""How late a run may be noticed, at least, before it counts as missed."""
CHECK_MS = 15_000
"""How often an entry is looked at that waits for something nobody tells of."""
NEVER_MS = MAX_SAFE_INTEGER
_TELLING_MS = 5000
"""How long whoever ran a job may take to tell its repeat-after-complete schedule."""
_MOST_AT_ONCE = 50
"""Missed runs of one schedule that one tick makes up for."""


@dataclass(frozen=True, slots=True)
class Fire:
    """One job that a schedule makes.

    Attributes:
        name: The scheduler.
        job_name: The job's name.
        data_text: The job's encoded data.
        options: How the job is placed. Its id is made of scheduler and due time, so that the same run, fired twice by
            leaders that overlap, is one job.
        options_text: The options as the template has them, to be stored in the job.
        scheduler_name: The scheduler, if it waits for the job to end; else empty.
        due_ms: When the run was due, epoch ms.
        previous: The job of the run before, if it matters whether that has ended; else empty.
        overlap: What to do while it has not.
    """

    name: str
    job_name: str
    data_text: str
    options: JobOptions
    options_text: str
    scheduler_name: str
    due_ms: int
    previous: str = ""
    overlap: Overlap = Overlap.ALLOW


@dataclass(frozen=True, slots=True)
class Awaited:
    """What became of the job that an entry waits for.

    Attributes:
        fate: ``open``, ``ended`` or ``gone``; empty when it is not known.
        ended_ms: When it ended, epoch ms.
    """

    fate: str = ""
    ended_ms: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What becomes of an entry whose run is held back, because the job of the run before has not ended.

    Attributes:
        text: The entry as JSON text; None removes it.
        look_ms: When to look at it again, epoch ms.
    """

    text: str | None
    look_ms: int


@dataclass(frozen=True, slots=True)
class TickPlan:
    """What one tick does, all of it or nothing.

    Attributes:
        fires: Jobs to add.
        updates: Entries to store, as JSON text by name.
        deletions: Entries to remove.
        held: What is stored instead if the run of an entry is held back.
        misses: Runs that are left out because they are late: scheduler, and when it was due.
        looks: When each entry that stays is to be looked at again, epoch ms.
        next_due_ms: When the next run is due after this tick, epoch ms; None when none is planned.
    """

    fires: tuple[Fire, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    deletions: tuple[str, ...] = ()
    held: Mapping[str, Held] = field(default_factory=dict)
    misses: tuple[tuple[str, int], ...] = ()
    looks: Mapping[str, int] = field(default_factory=dict)
    next_due_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.fires or self.updates or self.deletions or self.misses)


def evaluate(
    entries: Mapping[str, str],
    now_ms: int,
    *,
    awaited: Mapping[str, Awaited] | None = None,
    grace_ms: int = GRACE_MS,
) -> TickPlan:
    """Decide what is due now.

    Entries that cannot be read are left alone, as are those whose time zone only other machines know. Those that can
    never run again are removed.

    Args:
        entries: The stored entries, as JSON text by scheduler name.
        now_ms: Epoch milliseconds by the caller's clock.
        awaited: What became of the jobs that entries wait for, by scheduler name.
        grace_ms: How late a run may be before it counts as missed.
    """
    decisions = {
        name: _decide(_Look(name, entry, now_ms, (awaited or {}).get(name, Awaited()), grace_ms))
        if (entry := SchedulerEntry.parse(stored)) is not None
        else _Decision(_UNREADABLE, look_ms=NEVER_MS)
        for name, stored in entries.items()
    }
    looks = {name: decision.look_ms for name, decision in decisions.items() if decision.after is not None}
    planned = [
        run_ms
        for name, decision in decisions.items()
        if decision.after is not None
        and not decision.after.is_paused
        and (run_ms := decision.after.run_at(name)) > now_ms
    ]
    return TickPlan(
        fires=tuple(fire for decision in decisions.values() for fire in decision.fires),
        updates={name: text for name, decision in decisions.items() if (text := decision.text) is not None},
        deletions=tuple(name for name, decision in decisions.items() if decision.after is None),
        held={name: decision.held for name, decision in decisions.items() if decision.held is not None},
        misses=tuple((name, decision.missed_ms) for name, decision in decisions.items() if decision.missed_ms),
        looks=looks,
        next_due_ms=min(planned, default=None),
    )


_UNREADABLE = SchedulerEntry({})


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known of an entry when it is looked at."""

    name: str
    entry: SchedulerEntry
    now_ms: int
    awaited: Awaited
    grace_ms: int


@dataclass(frozen=True, slots=True)
class _Decision:
    """The jobs that an entry makes now, if any, and what becomes of the entry; None removes it."""

    after: SchedulerEntry | None
    fires: tuple[Fire, ...] = ()
    text: str | None = None
    """The entry, if it changed."""
    look_ms: int = NEVER_MS
    held: Held | None = None
    missed_ms: int = 0


def _decide(look: _Look) -> _Decision:
    entry, now_ms = look.entry, look.now_ms
    timing, run_ms = entry.timing, entry.run_at(look.name)
    if not timing.is_complete:
        return _Decision(None)
    if entry.is_paused:
        # A worker of another client, at the end of a job, knows no pause.
        return _Decision(entry) if not entry.members.get("nextRun") else _stored(look, entry.paused())
    if not run_ms or run_ms > now_ms:
        return _wait(look)
    if entry.is_exhausted or timing.ends_before(entry.next_run):
        return _Decision(None)
    if timing.pattern and find_zone(timing.tz) is None:
        return _Decision(entry, look_ms=now_ms + CHECK_MS)
    try:
        return _make_due(look)
    except ScheduleError:
        return _Decision(None)
    except PayloadError:
        return _Decision(entry, look_ms=now_ms + CHECK_MS)


def _stored(look: _Look, after: SchedulerEntry | None, **more: Any) -> _Decision:
    """The entry as it is from now on, and when to look at it next."""
    if after is None:
        return _Decision(None, **more)
    return _Decision(after, text=after.dump(), look_ms=_next_look(look, after), **more)


def _next_look(look: _Look, after: SchedulerEntry) -> int:
    if after.is_paused:
        return NEVER_MS
    planned_ms = after.run_at(look.name) or NEVER_MS
    waits = after.queued or after.waits_for_completion
    return min(planned_ms, look.now_ms + CHECK_MS) if waits else planned_ms


def _wait(look: _Look) -> _Decision:
    """Nothing is due; but the job that the entry waits for may have ended."""
    entry, now_ms, awaited = look.entry, look.now_ms, look.awaited
    rests = _Decision(entry, look_ms=_next_look(look, entry))
    if awaited.fate not in ("ended", "gone"):
        return rests
    if entry.queued:
        try:
            return _made(look, (entry.queued,), entry.next_run or None)
        except PayloadError:
            return rests
    if not entry.waits_for_completion or now_ms - max(awaited.ended_ms, entry.last_run or 0) < _TELLING_MS:
        return rests
    return _stored(look, entry.completed(awaited.ended_ms or now_ms))


def _make_due(look: _Look) -> _Decision:
    """Make the runs that are due, as far as the policies want them."""
    entry, timing, due_ms = look.entry, look.entry.timing, look.entry.next_run
    policies = entry.policies
    # A run that is late by its jitter is on time, and so are those that came due meanwhile.
    after_ms = max(due_ms, look.now_ms - policies.delay_ms(look.name, due_ms))
    following_ms = 0 if timing.repeats_after_complete else timing.following_run(due_ms, after_ms)
    if policies.missed == "skip" and after_ms - due_ms > look.grace_ms:
        latest_ms = timing.runs_until(due_ms, after_ms, 1)[-1]
        if after_ms - latest_ms > look.grace_ms:
            if timing.repeats_after_complete:
                following_ms = timing.following_run(due_ms, look.now_ms)
            after = None if following_ms is None else entry.planned(following_ms)
            return _stored(look, after, missed_ms=due_ms)
        return replace(_made(look, (latest_ms,), following_ms), missed_ms=due_ms)
    if policies.missed == "fire_all" and not timing.repeats_after_complete:
        runs = timing.runs_until(due_ms, after_ms, policies.missed_max)
        at_once = 1 if policies.overlap is not Overlap.ALLOW else _MOST_AT_ONCE
        if entry.limit is not None:
            at_once = min(at_once, entry.limit - entry.iteration_count)
        following_ms = runs[at_once] if len(runs) > at_once else following_ms
        return _made(look, tuple(runs[:at_once]), following_ms)
    return _made(look, (due_ms,), following_ms)


def _made(look: _Look, runs: Sequence[int], following_ms: int | None) -> _Decision:
    """Make these runs. If the job of the run before is to be waited for, there is one run only."""
    entry, timing, overlap = look.entry, look.entry.timing, look.entry.overlap
    is_guarded = overlap is not Overlap.ALLOW and not timing.repeats_after_complete
    fires = tuple(_fire(look.name, entry, due_ms) for due_ms in runs)
    job = fires[-1].options.job_id if is_guarded or timing.repeats_after_complete else None
    after = entry.fired(look.now_ms, following_ms, jobs=len(runs), job=job, queued=None)
    held = None
    if is_guarded and entry.last_job:
        fires = tuple(replace(fire, previous=entry.last_job, overlap=overlap) for fire in fires)
        held = _held(look, runs[-1], following_ms)
    return _stored(look, after, fires=fires, held=held)


def _held(look: _Look, due_ms: int, following_ms: int | None) -> Held:
    """The entry, if the run has to wait for the job of the one before, or is left out because of it."""
    after: SchedulerEntry | None
    if look.entry.overlap is Overlap.QUEUE_ONE:
        after = look.entry.planned(following_ms or 0, queued=due_ms)
    else:
        after = None if following_ms is None else look.entry.planned(following_ms)
    if after is None:
        return Held(None, NEVER_MS)
    return Held(after.dump(), _next_look(look, after))


def run_now(name: str, entry: SchedulerEntry, now_ms: int) -> Fire:
    """A run by hand: its job has an id of its own, and neither the limit nor the next run takes notice of it.

    Raises:
        PayloadError: The template's data cannot be written as JSON, or is larger than 1 MiB.
    """
    fire = _fire(name, entry, now_ms)
    options = fire.options.model_copy(update={"job_id": f"{fire_id(name, now_ms, reserve=4)}-now"})
    return replace(fire, options=options, scheduler_name="")


def _fire(name: str, entry: SchedulerEntry, due_ms: int) -> Fire:
    stored = entry.job_options
    options = JobOptions(
        job_id=fire_id(name, due_ms),
        priority=min(_count(stored.get("priority")), MAX_PRIORITY),
        attempts=_count(stored.get("attempts")),
        ttl=timedelta(milliseconds=_count(stored.get("ttl"))),
        lifo=stored.get("lifo") is True,
    )
    return Fire(
        name=name,
        job_name=entry.job_name(name),
        data_text=entry.data_text(),
        options=options,
        options_text=dump_json(stored),
        scheduler_name=name if entry.timing.repeats_after_complete or entry.overlap is Overlap.QUEUE_ONE else "",
        due_ms=due_ms,
    )


def _count(value: object) -> int:
    return max(0, whole(value) or 0)
