"""Jobs as callers add and see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.dialects.chasquimq.backoff import BackoffSpec
from orchestration_queue.dialects.chasquimq.checks import (
    checked_id,
    checked_name,
    duration_ms,
    moment_ms,
    retry_override,
)
from orchestration_queue.dialects.chasquimq.envelope import Envelope, join_member, pack_envelope
from orchestration_queue.dialects.chasquimq.keys import ChasquiKeys
from orchestration_queue.dialects.chasquimq.packing import pack, unpack
from orchestration_queue.errors import InvalidOptionError, ServerError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.protocol.record import JobRecord

__all__ = ["LATEST_MS", "MAX_LENGTH", "ChasquiJob", "NewChasquiJob", "PreparedJob", "prepare_job", "publish_call"]

MAX_LENGTH = 1_000_000
"""About how many jobs a stream may hold; beyond it the server drops the oldest."""
MARKER_GRACE_S = 3600
"""How long a job's id stays taken after its time."""


@dataclass(frozen=True, slots=True)
class NewChasquiJob:
    """A job to add.

    Attributes:
        name: Its name, up to 256 bytes; may be empty.
        data: Anything MessagePack can carry.
        delay: How long it waits before it may run: a duration, or seconds.
        delay_until: When it may run, instead of `delay`.
        attempts: How often its handler may run; None for the worker's default.
        backoff: The pauses between attempts; a duration, or seconds, for equal ones; None for the worker's default.
        job_id: Its id. While it waits, and an hour longer, further jobs of that id are not added.
    """

    name: str
    data: Any = None
    delay: Duration | None = None
    delay_until: datetime | None = None
    attempts: int | None = None
    backoff: BackoffSpec | Duration | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class ChasquiJob:
    """A job of a queue.

    Attributes:
        queue: The queue's name.
        id: The job's id.
        name: Its name.
        data: Its payload.
        attempt: How many of its attempts have failed.
        created_at: When it was added, on its producer's clock.
        is_new: False when its id was taken, so that nothing was added.
    """

    queue: str
    id: str
    name: str
    data: Any
    attempt: int
    created_at: datetime
    is_new: bool = True

    @property
    def record(self) -> JobRecord:
        """The job as :class:`orchestration_queue.tasks.Tasks` reads it: without JSON, so tasks read `data`."""
        return JobRecord(self.id, {"name": self.name, "data": "", "attemptsMade": str(self.attempt)})

    @classmethod
    def read(cls, queue: str, name: str, envelope: Envelope) -> ChasquiJob:
        """Read a job; raises PayloadError when its data cannot be read."""
        created_at = datetime.fromtimestamp(min(envelope.created_at_ms, LATEST_MS) / 1000, UTC)
        return cls(queue, envelope.id, name, unpack(envelope.payload), envelope.attempt, created_at)


LATEST_MS = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A checked job and the calls that add it; the last one's reply says whether it was added."""

    job: ChasquiJob
    calls: tuple[Call, ...]

    def added(self, reply: Reply) -> ChasquiJob:
        """Return the job as the server took it; raise the server's error when it did not."""
        if isinstance(reply, ServerError):
            raise reply
        if self.calls[-1].is_function and reply == 0:
            job = self.job
            return ChasquiJob(job.queue, job.id, job.name, job.data, job.attempt, job.created_at, is_new=False)
        return self.job


def prepare_job(keys: ChasquiKeys, new: NewChasquiJob, now_ms: int, ids: Iterator[str], max_length: int) -> PreparedJob:
    """Check a job and build the calls that add it.

    Args:
        keys: The queue's keys.
        new: The job.
        now_ms: The time, epoch ms.
        ids: New ids, one of which it takes unless it has its own.
        max_length: About how many jobs the stream may hold.

    Raises:
        UsageError: The wire cannot carry it; nothing was sent.
    """
    name, run_at_ms = checked_name(new.name), _run_at_ms(new, now_ms)
    job_id = next(ids) if new.job_id is None else checked_id(new.job_id)
    envelope = Envelope(job_id, pack(new.data), now_ms, retry=retry_override(new.attempts, new.backoff))
    packed = pack_envelope(envelope)
    created_at = datetime.fromtimestamp(now_ms / 1000, UTC)
    job = ChasquiJob(keys.queue, job_id, name, new.data, 0, created_at)
    if run_at_ms > now_ms:
        ttl_s = max(1, (run_at_ms - now_ms) // 1000) + MARKER_GRACE_S
        member, is_unique = join_member(name, packed), new.job_id is not None
        return PreparedJob(job, _delay_calls(keys, job, is_unique, run_at_ms, ttl_s, member))
    if new.job_id is None:
        return PreparedJob(job, (publish_call(keys, name, packed, max_length),))
    call = functions.add(
        stream_key=keys.stream,
        marker_key=keys.marker(job_id),
        ttl_s=MARKER_GRACE_S,
        max_length=max_length,
        job_name=name,
        envelope=packed,
    )
    return PreparedJob(job, (call,))


def publish_call(keys: ChasquiKeys, name: str, envelope: bytes, max_length: int) -> Call:
    """Build the call that adds a job at once."""
    named = ("n", name) if name else ()
    return Call("XADD", (keys.stream,), ("MAXLEN", "~", max_length, "*", "d", envelope, *named))


def _run_at_ms(new: NewChasquiJob, now_ms: int) -> int:
    if new.delay is not None and new.delay_until is not None:
        raise InvalidOptionError("`delay` and `delay_until` exclude each other; pass either.")
    if new.delay_until is not None:
        return moment_ms(new.delay_until, "delay_until")
    return now_ms if new.delay is None else now_ms + duration_ms(new.delay, "delay")


def _delay_calls(
    keys: ChasquiKeys, job: ChasquiJob, is_unique: bool, run_at_ms: int, ttl_s: int, member: bytes
) -> tuple[Call, ...]:
    if not is_unique:
        # The original writes no index here and cannot cancel such jobs. It comes first: alone it does no harm.
        index = Call("SET", (keys.index(job.id),), (member, "EX", ttl_s))
        return index, Call("ZADD", (keys.delayed,), (run_at_ms, member))
    delay = functions.delay(
        marker_key=keys.marker(job.id),
        delayed_key=keys.delayed,
        index_key=keys.index(job.id),
        ttl_s=ttl_s,
        run_at_ms=run_at_ms,
        member=member,
    )
    return (delay,)
