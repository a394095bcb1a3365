"""One look at all schedules of a queue: what is due, and what to write. Nothing is sent here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from orchestration_queue.errors import PayloadError, ScheduleError
from orchestration_queue.options import FORBIDDEN_IN_NAMES, MAX_NAME_LENGTH, MAX_PRIORITY, JobOptions
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.schedules.cron import find_zone
from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.timing import whole

__all__ = ["Fire", "TickPlan", "evaluate", "fire_id"]


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
    """

    name: str
    job_name: str
    data_text: str
    options: JobOptions
    options_text: str
    scheduler_name: str
    due_ms: int


@dataclass(frozen=True, slots=True)
class TickPlan:
    """What one tick does, all of it or nothing.

    Attributes:
        fires: Jobs to add.
        updates: Entries to store, as JSON text by name.
        deletions: Entries to remove.
        next_due_ms: When the next run is due after this tick, epoch ms; None when none is planned.
    """

    fires: tuple[Fire, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    deletions: tuple[str, ...] = ()
    next_due_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.fires or self.updates or self.deletions)


def evaluate(entries: Mapping[str, str], now_ms: int) -> TickPlan:
    """Decide what is due now. A run that was missed several times is made once.

    Entries that cannot be read are left alone, as are those whose time zone only other machines know. Those that can
    never run again are removed.

    Args:
        entries: The stored entries, as JSON text by scheduler name.
        now_ms: Epoch milliseconds by the caller's clock.
    """
    fires: list[Fire] = []
    updates: dict[str, str] = {}
    deletions: list[str] = []
    planned: list[int] = []
    for name, stored in entries.items():
        entry = SchedulerEntry.parse(stored)
        if entry is None:
            continue
        decision = _decide(name, entry, now_ms)
        if decision.fire:
            fires.append(decision.fire)
        if decision.after is None:
            deletions.append(name)
            continue
        if decision.text is not None:
            updates[name] = decision.text
        if decision.after.next_run > now_ms:
            planned.append(decision.after.next_run)
    return TickPlan(tuple(fires), updates, tuple(deletions), min(planned, default=None))


@dataclass(frozen=True, slots=True)
class _Decision:
    """The job that an entry makes now, if any, and what becomes of the entry; None removes it."""

    after: SchedulerEntry | None
    fire: Fire | None = None
    text: str | None = None
    """The entry, if it changed."""


def _decide(name: str, entry: SchedulerEntry, now_ms: int) -> _Decision:
    timing, due_ms = entry.timing, entry.next_run
    if not timing.is_complete:
        return _Decision(None)
    if not due_ms or due_ms > now_ms:
        return _Decision(entry)
    if entry.is_exhausted or timing.ends_before(due_ms):
        return _Decision(None)
    if timing.pattern and find_zone(timing.tz) is None:
        return _Decision(entry)
    try:
        following_ms = 0 if timing.repeats_after_complete else timing.following_run(due_ms, now_ms)
    except ScheduleError:
        return _Decision(None)
    try:
        after = entry.fired(now_ms, following_ms)
        return _Decision(after, _fire(name, entry), after.dump() if after else None)
    except PayloadError:
        return _Decision(entry)


def _fire(name: str, entry: SchedulerEntry) -> Fire:
    stored = entry.job_options
    options = JobOptions(
        job_id=fire_id(name, entry.next_run),
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
        scheduler_name=name if entry.timing.repeats_after_complete else "",
        due_ms=entry.next_run,
    )


def _count(value: object) -> int:
    return max(0, whole(value) or 0)


def fire_id(scheduler: str, due_ms: int) -> str:
    """The id of the job that a scheduler makes for one run: the same for every leader, and no other run's.

    Characters that job ids cannot carry are written as ``%`` and their bytes in hexadecimal. A name too long to fit
    is cut, and told apart by its digest.
    """
    name = "".join(_escaped(character) for character in scheduler)
    room = MAX_NAME_LENGTH - len(f"repeat..{due_ms}")
    if len(name) > room:
        digest = hashlib.sha256(scheduler.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        name = f"{name[: room - len(digest) - 2]}%-{digest}"
    return f"repeat.{name}.{due_ms}"


def _escaped(character: str) -> str:
    if character == "%" or character in FORBIDDEN_IN_NAMES or not character.isprintable():
        return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
    return character
