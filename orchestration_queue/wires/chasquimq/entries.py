"""The contents of a queue's streams and sets, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.errors import PayloadError, ServerError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.functions.chasquimq import Replayed
from orchestration_queue.wires.chasquimq.envelope import Envelope, pack_envelope, split_member, unpack_envelope
from orchestration_queue.wires.chasquimq.jobs import LATEST_MS, ChasquiJob
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.packing import unpack
from orchestration_queue.wires.chasquimq.repeat import RepeatSpec

__all__ = [
    "REASONS",
    "ChasquiCounts",
    "ChasquiDeadLetter",
    "ChasquiEvent",
    "ChasquiSchedule",
    "count_calls",
    "entry_order",
    "find_envelope",
    "find_job",
    "read_counts",
    "read_dead_letters",
    "read_delayed",
    "read_events",
    "read_fields",
    "read_jobs",
    "read_ms",
    "read_name",
    "read_schedules",
    "replayable",
]

DEFAULT_GROUP = "default"
_FIRST_MS = int(datetime(1, 1, 2, tzinfo=UTC).timestamp() * 1000)
# Scores are doubles, exact up to this.
_MAX_MS = 2**53


@dataclass(frozen=True, slots=True)
class ChasquiCounts:
    """How many jobs a queue has.

    Attributes:
        ready: Jobs that no worker has taken.
        running: Jobs that a worker has taken.
        delayed: Delayed jobs, including retries.
        dead_letters: Jobs that failed for good.
        schedules: Repeatable jobs.
        is_paused: Whether the queue is paused.
    """

    ready: int
    running: int
    delayed: int
    dead_letters: int
    schedules: int
    is_paused: bool


REASONS = frozenset({"retries_exhausted", "unrecoverable", "decode_failed", "malformed", "oversize_payload"})
"""Why jobs become dead letters."""


@dataclass(frozen=True, slots=True)
class ChasquiDeadLetter:
    """A job that failed for good.

    Attributes:
        id: Its entry in the dead-letter queue.
        name: The job's name.
        reason: ``retries_exhausted``, ``unrecoverable``, ``decode_failed``, ``malformed`` or ``oversize_payload``.
        detail: The error, where the worker kept one.
        source_id: Its last entry in the queue's stream.
        job_id: The job's id; None when the envelope cannot be read.
        data: The job's payload; None when it cannot be read.
        added_at: When it was moved here.
        envelope: The job as it was stored.
    """

    id: str
    name: str
    reason: str
    detail: str | None
    source_id: str | None
    job_id: str | None
    data: Any
    added_at: datetime
    envelope: bytes


@dataclass(frozen=True, slots=True)
class ChasquiSchedule:
    """A repeatable job.

    Attributes:
        key: Its identity in the queue.
        next_at: When it fires next.
        fired: How often it has fired.
        spec: Its spec; None when it cannot be read.
    """

    key: str
    next_at: datetime
    fired: int
    spec: RepeatSpec | None


@dataclass(frozen=True, slots=True)
class ChasquiEvent:
    """An event of a queue.

    Attributes:
        id: Its id, from which reading can be resumed.
        type: ``active``, ``completed``, ``failed``, ``retry-scheduled``, ``dlq``, ``waiting`` or ``drained``.
        job_id: The job; None if it is about none, or about an unreadable entry.
        job_name: The job's name; empty if the event has none.
        at: When it happened, on the reporter's clock.
        fields: Its other fields, such as ``attempt``, ``reason`` or ``duration_us``.
    """

    id: str
    type: str
    job_id: str | None
    job_name: str
    at: datetime
    fields: Mapping[str, str]


def read_fields(flat: Sequence[bytes] | None) -> dict[bytes, bytes]:
    """Read the fields of a stream entry; if a name is repeated, the first counts."""
    words = iter(flat or ())
    return dict(reversed(list(zip(words, words, strict=False))))


def read_name(fields: dict[bytes, bytes]) -> str:
    """Return a job's name; one that is not UTF-8 is empty, as for the original."""
    try:
        return fields.get(b"n", b"").decode()
    except UnicodeDecodeError:
        return ""


def count_calls(keys: ChasquiKeys, group: str = DEFAULT_GROUP) -> list[Call]:
    """Build the calls whose replies :func:`read_counts` reads."""
    return [
        Call("XLEN", (keys.stream,)),
        Call("XPENDING", (keys.stream,), (group,)),
        Call("ZCARD", (keys.delayed,)),
        Call("XLEN", (keys.dead_letters,)),
        Call("ZCARD", (keys.repeat,)),
        Call("EXISTS", (keys.paused,)),
    ]


def read_counts(replies: Sequence[Reply]) -> ChasquiCounts:
    """Read a queue's counts."""
    total, pending, delayed, dead, schedules, paused = replies
    # No worker has created the group yet: no job is running.
    running = 0 if isinstance(pending, ServerError) else int(pending[0])
    return ChasquiCounts(max(0, total - running), running, delayed, dead, schedules, bool(paused))


def read_dead_letters(reply: Reply) -> list[ChasquiDeadLetter]:
    """Read entries of the dead-letter queue."""
    return [_dead_letter(entry_id.decode(), read_fields(flat)) for entry_id, flat in reply or ()]


def _dead_letter(entry_id: str, fields: dict[bytes, bytes]) -> ChasquiDeadLetter:
    def text(name: bytes) -> str | None:
        value = fields.get(name)
        return None if value is None else value.decode(errors="replace")

    packed = fields.get(b"d", b"")
    envelope = find_envelope(packed)
    try:
        data = None if envelope is None else unpack(envelope.payload)
    except PayloadError:
        data = None
    return ChasquiDeadLetter(
        id=entry_id,
        name=read_name(fields),
        reason=text(b"reason") or "",
        detail=text(b"detail"),
        source_id=text(b"source_id"),
        job_id=None if envelope is None else envelope.id,
        data=data,
        added_at=moment(entry_id.partition("-")[0]),
        envelope=packed,
    )


def find_envelope(packed: bytes) -> Envelope | None:
    """Return an envelope; None when it cannot be read."""
    try:
        return unpack_envelope(packed)
    except PayloadError:
        return None


def replayable(letters: Sequence[ChasquiDeadLetter]) -> list[Replayed]:
    """Build what the replay of dead letters sends; those that cannot be read are left out."""
    readable = ((letter, find_envelope(letter.envelope)) for letter in letters)
    return [
        Replayed(letter.id, pack_envelope(envelope.with_attempt(0)), letter.name)
        for letter, envelope in readable
        if envelope is not None
    ]


def read_jobs(queue: str, reply: Reply) -> list[ChasquiJob]:
    """Read entries of the stream; those that cannot be read are left out."""
    entries = ((read_name(fields), fields.get(b"d", b"")) for _, flat in reply or () for fields in [read_fields(flat)])
    return [job for name, packed in entries if (job := find_job(queue, name, packed))]


def read_delayed(queue: str, reply: Reply) -> list[tuple[datetime, ChasquiJob]]:
    """Read members of the delayed set with their times; those that cannot be read are left out."""
    found = []
    for member, score in zip(reply[::2], reply[1::2], strict=True):
        parts = split_member(member)
        if parts and (job := find_job(queue, *parts)):
            found.append((moment(score), job))
    return found


def read_schedules(due: Reply, specs: Sequence[Reply]) -> list[ChasquiSchedule]:
    """Read repeatable jobs: keys with their next fires, and for each its packed spec and how often it fired."""
    return [
        ChasquiSchedule(key.decode(errors="replace"), moment(score), int(fired or 0), _find_spec(packed))
        for key, score, (packed, fired) in zip(due[::2], due[1::2], specs, strict=True)
    ]


def moment(score: bytes | str) -> datetime:
    """Read a score: epoch milliseconds. Times that a datetime cannot hold become the nearest one."""
    return datetime.fromtimestamp(min(max(read_ms(score), _FIRST_MS), LATEST_MS) / 1000, UTC)


def read_ms(score: bytes | str) -> int:
    """Read a score, which others may have set to infinity."""
    return int(min(max(float(score), -_MAX_MS), _MAX_MS))


def find_job(queue: str, name: str, packed: bytes) -> ChasquiJob | None:
    """Return a job; None when it cannot be read."""
    try:
        return ChasquiJob.read(queue, name, unpack_envelope(packed))
    except PayloadError:
        return None


def _find_spec(packed: bytes | None) -> RepeatSpec | None:
    try:
        return None if packed is None else RepeatSpec.unpack(packed)
    except PayloadError:
        return None


def entry_order(entry_id: str) -> tuple[int, int]:
    """Return what orders the ids of a stream's entries."""
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number or 0)


def read_events(reply: Reply) -> list[ChasquiEvent]:
    """Read entries of the event stream."""
    return [_event(entry_id.decode(), flat) for _, entries in reply or () for entry_id, flat in entries]


def _event(entry_id: str, flat: Sequence[bytes]) -> ChasquiEvent:
    pairs = read_fields(flat)
    fields = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs.items()}
    kind, job_id, name, at = (fields.pop(key, "") for key in ("e", "id", "n", "ts"))
    at_ms = at if at.isascii() and at.isdecimal() else entry_id.partition("-")[0]
    return ChasquiEvent(entry_id, kind, job_id or None, name, moment(at_ms), fields)
