"""The timeline of a job: what it waited for, its attempts, its steps, and what happened to it, on one time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestration_queue.http.console.views import duration
from orchestration_queue.protocol.history import HistoryEvent
from orchestration_queue.protocol.operations.steps import JobStep
from orchestration_queue.protocol.operations.suspension import read_signals
from orchestration_queue.protocol.record import JobRecord, when
from orchestration_queue.states import JobState

__all__ = ["Timeline", "TimelineEntry", "draw_timeline"]

_LANES = ("Attempts", "Steps", "Events")
_ATTEMPTS, _STEPS, _EVENTS = range(3)
_NARROWEST = 0.4
"""Percent of the axis that a span takes at least."""
_TONES = {
    HistoryEvent.FAILED: "failed",
    HistoryEvent.STALLED: "stalled",
    HistoryEvent.COMPLETED: "completed",
    HistoryEvent.CANCELLED: "failed",
    HistoryEvent.RELEASED: "delayed",
}
_SAID = {
    HistoryEvent.FAILED: "failed",
    HistoryEvent.STALLED: "was lost with its worker",
    HistoryEvent.RELEASED: "was taken from its worker",
    HistoryEvent.COMPLETED: "completed",
    HistoryEvent.CANCELLED: "was cancelled",
}
_HAPPENED = {
    HistoryEvent.RETRIED: "retried by hand",
    HistoryEvent.MOVED: "moved from another queue",
    HistoryEvent.CANCELLED: "cancelled",
    HistoryEvent.RELEASED: "taken from its worker",
}
_WAITS = {
    JobState.DELAYED: "waits until it is due",
    JobState.SUSPENDED: "waits for a signal",
    JobState.WAITING_CHILDREN: "waits for other jobs",
}


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something on the timeline.

    Attributes:
        lane: Its row.
        tone: The state that determines its color.
        what: What it is.
        start: When it began, or when it happened.
        end: When it ended; None for what took no time.
        where: The worker's machine; empty if unknown.
        detail: Why, or how it ended.
    """

    lane: int
    tone: str
    what: str
    start: datetime
    end: datetime | None = None
    where: str = ""
    detail: str = ""

    @property
    def seconds(self) -> float | None:
        """How long it took; None for what took no time."""
        return None if self.end is None else max(0.0, (self.end - self.start).total_seconds())

    @property
    def title(self) -> str:
        """What it is, and how long it took."""
        return self.what if self.seconds is None else f"{self.what}, {duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """A drawn timeline.

    Attributes:
        lanes: The names of its rows.
        entries: The entries, by when they began.
        spans: The same in their places: the row, the left and the width in percent (0 for a moment), and the entry.
        seconds: How long it all took.
    """

    lanes: Sequence[str]
    entries: Sequence[TimelineEntry]
    spans: Sequence[tuple[int, float, float, TimelineEntry]]
    seconds: float


def draw_timeline(record: JobRecord, steps: Sequence[JobStep], now: datetime) -> Timeline | None:
    """Return the timeline of a job until now; None if nothing is known of it."""
    attempts = sorted(_attempts(record, now), key=_start_of)
    entries = [*attempts, *_waits(record, attempts, now), *_steps(steps, now), *_events(record)]
    entries.sort(key=_start_of)
    if not entries:
        return None
    begin = entries[0].start
    seconds = max(0.001, *((_end_of(entry) - begin).total_seconds() for entry in entries))
    used = sorted({entry.lane for entry in entries})
    spans = [(used.index(entry.lane), *_place(entry, begin, seconds), entry) for entry in entries]
    return Timeline([_LANES[lane] for lane in used], entries, spans, seconds)


def _start_of(entry: TimelineEntry) -> datetime:
    return entry.start


def _end_of(entry: TimelineEntry) -> datetime:
    return max(entry.start, entry.end or entry.start)


def _place(entry: TimelineEntry, begin: datetime, seconds: float) -> tuple[float, float]:
    left = min(100 - _NARROWEST, 100 * (entry.start - begin).total_seconds() / seconds)
    width = 0.0 if entry.seconds is None else max(_NARROWEST, 100 * entry.seconds / seconds)
    return round(left, 2), round(min(width, 100 - left), 2)


def _attempts(record: JobRecord, now: datetime) -> Iterator[TimelineEntry]:
    for entry in record.history:
        if entry.started_at and entry.ended_at and entry.event in _SAID:
            what = f"attempt {entry.attempt} {_SAID[entry.event]}" if entry.attempt else _SAID[entry.event]
            why = entry.reason.partition("\n")[0]
            yield TimelineEntry(
                _ATTEMPTS, _TONES[entry.event], what, entry.started_at, entry.ended_at, entry.host or entry.worker, why
            )
    start, known = record.latest_start, {entry.started_at for entry in record.history}
    if start is None or start in known:
        return
    if record.fields.get("state") == JobState.ACTIVE:
        yield TimelineEntry(_ATTEMPTS, "active", f"attempt {record.attempts} runs", start, now)
    elif (since := when(record.fields.get("suspendedAt"))) is not None and record.finished_at is None:
        yield TimelineEntry(
            _ATTEMPTS, "active", f"attempt {record.attempts_made + 1} ran until it waited", start, since
        )
    elif record.finished_at is not None:
        outcome = "completed" if record.fields.get("state") == JobState.COMPLETED else "failed"
        why = (record.failed_reason or "").partition("\n")[0] if outcome == "failed" else ""
        what = f"attempt {record.attempts} {outcome}"
        yield TimelineEntry(_ATTEMPTS, outcome, what, start, record.finished_at, detail=why)


def _waits(record: JobRecord, attempts: Sequence[TimelineEntry], now: datetime) -> Iterator[TimelineEntry]:
    """Yield what is between the attempts, and before and after them."""
    before = record.added_at
    for attempt in attempts:
        if before is not None and attempt.start > before:
            yield TimelineEntry(_ATTEMPTS, "waiting", "waited", before, attempt.start)
        before = attempt.end if before is None else max(before, _end_of(attempt))
    state = record.fields.get("state")
    if before is None or state == JobState.ACTIVE or before >= now:
        return
    if record.finished_at is None:
        what = next((said for of, said in _WAITS.items() if of == state), "waits")
        yield TimelineEntry(_ATTEMPTS, str(state or "waiting"), what, before, now)
    elif not attempts and record.finished_at > before:
        yield TimelineEntry(_ATTEMPTS, "waiting", "waited, and never started", before, record.finished_at)


def _steps(steps: Sequence[JobStep], now: datetime) -> Iterator[TimelineEntry]:
    for step in steps:
        if step.ended_at is None:
            continue
        detail = f"attempt {step.attempt}, {step.outcome}"
        if step.is_pause:
            until = now if step.until is None else min(now, step.until)
            yield TimelineEntry(_STEPS, "suspended", step.name, step.ended_at, until, detail=detail)
        else:
            tone = "failed" if step.kind in ("raised", "failed", "timed_out") else "completed"
            yield TimelineEntry(_STEPS, tone, step.name, step.started_at or step.ended_at, step.ended_at, detail=detail)


def _events(record: JobRecord) -> Iterator[TimelineEntry]:
    if record.added_at is not None:
        yield TimelineEntry(_EVENTS, "waiting", "added", record.added_at)
    for entry in record.history:
        if entry.ended_at and not entry.started_at and entry.event in _HAPPENED:
            tone = _TONES.get(entry.event, "active")
            yield TimelineEntry(_EVENTS, tone, _HAPPENED[entry.event], entry.ended_at, detail=entry.reason)
    if (since := when(record.fields.get("suspendedAt"))) is not None:
        reason = record.fields.get("suspendReason", "")
        yield TimelineEntry(_EVENTS, "suspended", "suspended", since, detail=reason)
    for signal in read_signals(record.fields.get("signals")):
        if signal.received_at is not None:
            yield TimelineEntry(_EVENTS, "suspended", f"signal {signal.name}", signal.received_at)
