"""One look at all schedules of a queue: what is due, and what to write. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestration_queue.errors import PayloadError, ScheduleError
from orchestration_queue.schedules.cron import find_zone
from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.fires import Fire
from orchestration_queue.schedules.plan import CHECK_MS, NEVER_MS, Held, TickPlan, next_look
from orchestration_queue.schedules.policies import Overlap

__all__ = ["GRACE_MS", "Awaited", "evaluate"]

GRACE_MS = 60_000
"""How late a run may be noticed, at least, before it counts as missed."""
_TELLING_MS = 5000
"""How long whoever ran a job may take to tell its repeat-after-complete schedule."""
_MOST_AT_ONCE = 50
"""Missed runs of one schedule that one tick makes up for."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """What became of the job that an entry waits for.

    Attributes:
        fate: ``open``, ``ended`` or ``gone``; empty when it is not known.
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
    return _Decision(after, text=after.dump(), look_ms=next_look(look.name, after, look.now_ms), **more)


def _wait(look: _Look) -> _Decision:
    """Nothing is due; but the job that the entry waits for may have ended."""
    entry, now_ms, awaited = look.entry, look.now_ms, look.awaited
    rests = _Decision(entry, look_ms=next_look(look.name, entry, now_ms))
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
    fires = tuple(Fire.of(look.name, entry, due_ms) for due_ms in runs)
    job = fires[-1].job_id if is_guarded or timing.repeats_after_complete else None
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
    return Held(after.dump(), next_look(look.name, after, look.now_ms))
