"""Durable steps: their stored outcomes, and how they are written, read, forgotten, and moved with their job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from orchestration_queue.errors import (
    JobNotFoundError,
    LeaseLostError,
    NotFoundError,
    ServerError,
    StateError,
    UsageError,
)
from orchestration_queue.options.base import MAX_NAME_LENGTH
from orchestration_queue.protocol.call import Call, Conversation, Operation, Reply, all_good, chunks, integer, text
from orchestration_queue.protocol.codec import MAX_PAYLOAD_BYTES
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.record import when

__all__ = [
    "CALLER",
    "CALLS_PER_CALL",
    "COUNTER",
    "MOST_STEPS",
    "VERSION",
    "JobStep",
    "StepKind",
    "StoredOutcome",
    "check_step_name",
    "copy_steps",
    "find_pending",
    "forget_steps",
    "full_error",
    "page_after",
    "read_results",
    "read_steps",
    "store_calls",
    "store_step",
]

VERSION = "oq.version"
"""The step whose result is the version of the code that stored a job's steps."""
COUNTER = "steps"
"""The record's field that counts stored steps; absent from jobs without any."""
_HEADER, _RESULT = "h:", "r:"
_FIELDS_PER_SCAN = 1000
_STEPS_PER_PAGE = 100
_STEPS_PER_CALL = 500
MOST_STEPS = 10_000
"""Most steps of a job."""
CALLS_PER_CALL = 100
"""Most jobs that steps call in one call."""
_CHECK_CALLS_MS = 5_000
CALLER = "call:"
"""What the ids of callers begin with among the flows that are due; ids of flows have no colon."""


class StepKind(StrEnum):
    """How a step ended."""

    RETURNED = "returned"
    RAISED = "raised"
    """It raised an error that it was asked to store."""
    SIGNALED = "signaled"
    """It waited for a signal, whose data is the result."""
    TIMED_OUT = "timed_out"
    """It waited for a signal, and none came in time."""
    SLEEPS = "sleeps"
    """It sleeps until a time. This is final, too: once that time has passed, the step has ended."""
    WAITS = "waits"
    """It waits for a signal. Another kind replaces this one."""
    CALLS = "calls"
    """It waits for a called job, which is the result. Another kind replaces this one."""
    COMPLETED = "completed"
    """The job that it called completed, with this result."""
    FAILED = "failed"
    """The job that it called failed, and it was asked to store that."""


_LETTERS = {
    StepKind.RETURNED: "r",
    StepKind.RAISED: "e",
    StepKind.SIGNALED: "g",
    StepKind.TIMED_OUT: "t",
    StepKind.SLEEPS: "s",
    StepKind.WAITS: "w",
    StepKind.CALLS: "c",
    StepKind.COMPLETED: "k",
    StepKind.FAILED: "x",
}
"""The kinds as they are stored."""
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}
_WORDS = {
    StepKind.SLEEPS: "sleep",
    StepKind.SIGNALED: "received its signal",
    StepKind.TIMED_OUT: "received no signal",
    StepKind.WAITS: "waits for its signal",
    StepKind.CALLS: "waits for its job",
    StepKind.COMPLETED: "its job completed",
    StepKind.FAILED: "its job failed",
}
_PENDING = (StepKind.WAITS, StepKind.CALLS)


@dataclass(frozen=True, slots=True)
class JobStep:
    """A durable step of a job.

    Attributes:
        name: Its name.
        kind: How it ended.
        number: Its place in the order in which steps were stored, from 1.
        attempt: The job's attempt that stored it.
        ended_at: When it ended, or began to sleep or wait, by the worker's machine.
        duration: How long its function ran, or how long it waited for what has arrived.
        until: Until when it sleeps or waits at most; None for no limit.
        size: Bytes of its encoded result.
    """

    name: str
    kind: StepKind
    number: int
    attempt: int
    ended_at: datetime | None
    duration: timedelta
    until: datetime | None
    size: int

    @property
    def started_at(self) -> datetime | None:
        """When its last run began; None if that is unknown."""
        return self.ended_at and self.ended_at - self.duration

    @property
    def is_pause(self) -> bool:
        """Whether it sleeps or waits since it was stored."""
        return self.kind in (StepKind.SLEEPS, *_PENDING)

    @property
    def outcome(self) -> str:
        """How it ended, in words, with the time until which it sleeps or waits."""
        until = f" until {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else ""
        return f"{_WORDS.get(self.kind, self.kind)}{until}"


class StoredOutcome(NamedTuple):
    """The outcome of a step that counts.

    Attributes:
        step: How it ended.
        result: What it returned or raised, encoded, or the job that it calls; None if that is what was passed to be
            stored.
    """

    step: JobStep
    result: str | None


def check_step_name(name: object) -> str:
    """Return the name of a step.

    Raises:
        UsageError: It is not text, empty, or too long.
    """
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable():
        return name
    raise UsageError(
        f"A step's name must be 1 to {MAX_NAME_LENGTH} printable characters, got {name!r:.300}; "
        "pass what the step does, such as 'charge' or f'page-{n}'."
    )


def store_step(
    keys: QueueKeys,
    lease: Lease,
    name: str,
    kind: StepKind,
    *,
    now_ms: int,
    duration_ms: int = 0,
    until_ms: int = 0,
    result: str = "",
    emit_event: bool = False,
) -> Operation[StoredOutcome]:
    """Store how a step of a running job ended, unless an outcome is stored. Sent twice, it stores once.

    Args:
        keys: The queue.
        lease: The running job, which must still be ours.
        name: The step.
        kind: How it ended.
        now_ms: Epoch milliseconds.
        duration_ms: How long its function ran.
        until_ms: Epoch milliseconds until which it sleeps or waits; 0 for no limit.
        result: What it returned or raised, encoded.
        emit_event: Emit an event if this is the outcome that counts, and final.

    Returns:
        The operation. It reads the outcome that counts: the first one, except that of a wait that has not ended.

    Raises:
        LeaseLostError: By the operation: the job is no longer ours, and nothing was stored.
        StateError: By the operation: the job has 10,000 steps, and nothing was stored.
    """
    call = oq1.store_step(
        keys,
        job_id=lease.job_id,
        taken_ms=lease.taken_ms,
        stalled_count=lease.stalled_count,
        name=name,
        kind=_LETTERS[kind],
        attempt=lease.record.attempts_made + 1,
        ended_ms=now_ms,
        duration_ms=duration_ms,
        until_ms=until_ms,
        result=result,
        event_kind=kind if emit_event and kind not in _PENDING else "",
    )

    def read(reply: Reply) -> StoredOutcome:
        _check_stored(keys, lease, name, reply)
        return _read_outcome(name, reply)

    return Operation(call, read)


def store_calls(
    keys: QueueKeys, lease: Lease, calls: Sequence[oq1.StepCall], now_ms: int
) -> Operation[list[StoredOutcome]]:
    """Store which jobs steps of a running job call, unless they have called, and make it wait for their end.

    The caller adds the jobs next. Sent twice, it stores once.

    Args:
        keys: The queue.
        lease: The running job, which must still be ours.
        calls: At most :data:`CALLS_PER_CALL` steps, and the job that each calls.
        now_ms: Epoch milliseconds.

    Returns:
        The operation. It reads the outcomes that count, of which those that wait have the job as result.

    Raises:
        LeaseLostError: By the operation: the job is no longer ours, and nothing was stored.
        StateError: By the operation: the job would have more than 10,000 steps, and nothing was stored.
    """
    call = oq1.store_calls(
        keys,
        calls=calls,
        job_id=lease.job_id,
        taken_ms=lease.taken_ms,
        stalled_count=lease.stalled_count,
        attempt=lease.record.attempts_made + 1,
        now_ms=now_ms,
        check_ms=now_ms + _CHECK_CALLS_MS,
    )

    def read(reply: Reply) -> list[StoredOutcome]:
        _check_stored(keys, lease, calls[0].name, reply)
        found = [_read_outcome(each.name, one) for each, one in zip(calls, reply, strict=True)]
        return [
            StoredOutcome(outcome.step, each.member if outcome.result is None else outcome.result)
            for each, outcome in zip(calls, found, strict=True)
        ]

    return Operation(call, read)


def _check_stored(keys: QueueKeys, lease: Lease, name: str, reply: Reply) -> None:
    if reply == b"lost":
        raise LeaseLostError(keys.queue, lease.job_id)
    if reply == b"full":
        raise full_error(lease.job_id, name)


def full_error(job_id: str, name: str) -> StateError:
    """Return the error of a job that can't have one more step."""
    return StateError(
        f"Job {job_id!r} has 10,000 steps, the most that a job can have, so {name!r} can't be stored; do several items "
        "in one step, or add a job per part."
    )


def _read_outcome(name: str, reply: Reply) -> StoredOutcome:
    return StoredOutcome(_parse(name, text(reply[0])), text(reply[1]) if len(reply) > 1 else None)


def read_steps(keys: QueueKeys, job_id: str) -> Conversation[list[JobStep]]:
    """Read a job's steps, without their results, in the order in which they were stored; 500 per exchange."""
    found: dict[str, JobStep] = {}
    cursor = "0"
    while True:
        scan = Call("HSCAN", (keys.steps(job_id),), (cursor, "MATCH", f"{_HEADER}*", "COUNT", _FIELDS_PER_SCAN))
        ((place, flat),) = all_good((yield [scan]))
        for field, header in zip(flat[::2], flat[1::2], strict=True):
            name = text(field).removeprefix(_HEADER)
            # HSCAN may return a field more than once.
            found[name] = _parse(name, text(header))
        if (cursor := text(place)) == "0":
            return sorted(found.values(), key=lambda step: step.number)


def read_results(keys: QueueKeys, job_id: str, names: Sequence[str]) -> Operation[list[str]]:
    """Read the encoded results of stored steps; empty text for those that have none."""
    call = Call("HMGET", (keys.steps(job_id),), tuple(_RESULT + name for name in names))
    return Operation(call, lambda reply: ["" if result is None else text(result) for result in reply])


def page_after(steps: Iterable[JobStep], first: JobStep) -> list[JobStep]:
    """Return a step and those that were stored next, whose results together are about 1 MiB at most."""
    page = [first]
    size = first.size
    for step in steps:
        if step.number > first.number:
            size += step.size
            if size > MAX_PAYLOAD_BYTES or len(page) == _STEPS_PER_PAGE:
                break
            page.append(step)
    return page


def find_pending(steps: Iterable[JobStep], now_ms: int) -> JobStep | None:
    """Return the step at which a job that does not run sleeps, or waits for a signal or a job; None if it doesn't."""
    now = when(now_ms)
    pending = [step for step in steps if step.kind in _PENDING or _sleeps_at(step, now)]
    return pending[-1] if pending else None


def _sleeps_at(step: JobStep, now: datetime | None) -> bool:
    return step.kind is StepKind.SLEEPS and step.until is not None and now is not None and step.until > now


def forget_steps(keys: QueueKeys, job_id: str, name: str, *, following: bool) -> Conversation[int]:
    """Remove a stored step, and optionally those that were stored after it; return how many were removed.

    The last ones go first, 500 per exchange: if that is interrupted, it can be repeated.

    Raises:
        JobNotFoundError: There is no such job.
        NotFoundError: The job has no such step.
        StateError: The job runs, or moves to another queue.
    """
    names = [name]
    if following:
        stored = [step.name for step in (yield from read_steps(keys, job_id))]
        names = stored[stored.index(name) :] if name in stored else [name]
    removed = 0
    for some in chunks(names[::-1], _STEPS_PER_CALL):
        (reply,) = all_good((yield [oq1.forget_steps(keys, job_id=job_id, names=some)]))
        removed += _read_forgotten(keys, job_id, name, integer(reply))
    return removed


def _read_forgotten(keys: QueueKeys, job_id: str, name: str, removed: int) -> int:
    if removed == -1:
        raise JobNotFoundError(keys.queue, job_id)
    if removed < 0:
        raise StateError(
            f"Job {job_id!r} of queue {keys.queue!r} is running, or on the move to another queue; "
            "forget its steps when it no longer is."
        )
    if removed == 0:
        raise NotFoundError(
            f"Job {job_id!r} of queue {keys.queue!r} has no stored step {name!r}; list its steps with "
            f"`oq job show {keys.queue} {job_id}`."
        )
    return removed


def copy_steps(keys: QueueKeys, target: QueueKeys, job_id: str, token: str) -> Conversation[None]:
    """Copy the steps of a job that is on its way to another queue, which holds it; about 1 MiB per two exchanges."""
    steps = yield from read_steps(keys, job_id)
    while steps:
        page = page_after(steps, steps[0])
        steps = steps[len(page) :]
        fields = [prefix + step.name for step in page for prefix in (_HEADER, _RESULT)]
        (values,) = all_good((yield [Call("HMGET", (keys.steps(job_id),), tuple(fields))]))
        stored = [oq1.StepField(field, value) for field, value in zip(fields, values, strict=True) if value is not None]
        all_good((yield [oq1.move_steps(target, job_id=job_id, token=token, fields=stored)]))


def _parse(name: str, header: str) -> JobStep:
    try:
        kind, number, attempt, ended, duration, until, size = header.split(" ")
        ran = timedelta(milliseconds=int(duration))
        return JobStep(name, _KINDS[kind], int(number), int(attempt), when(ended), ran, when(until), int(size))
    except (ValueError, KeyError, OverflowError):
        raise ServerError(
            f"The stored step {name!r} cannot be read ({header!r:.100}): another client has overwritten it; "
            "remove it with job.forget_step()."
        ) from None
