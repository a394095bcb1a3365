"""Jobs as callers add and see them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from orchestration_queue.errors import InvalidOptionError, PayloadError, ServerError, UnrecoverableError, UsageError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.wires.chasquimq.checks import (
    check_id,
    check_name,
    duration_ms,
    moment_ms,
    retry_override,
)
from orchestration_queue.wires.chasquimq.envelope import (
    BackoffSpec,
    Envelope,
    RetryOverride,
    join_member,
    pack_envelope,
)
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.packing import pack, unpack
from orchestration_queue.wires.handling import JobForm

__all__ = [
    "FORM",
    "LATEST_MS",
    "MAX_LENGTH",
    "ChasquiJob",
    "CheckedJob",
    "JobBuilder",
    "NewChasquiJob",
    "PreparedJob",
    "publish_call",
]

MAX_LENGTH = 1_000_000
"""About how many jobs a stream may hold; beyond it the server drops the oldest."""
MARKER_GRACE_S = 3600
"""How long a job's id stays taken after its time."""


@dataclass(frozen=True, slots=True)
class NewChasquiJob:
    """A job to add.

    Attributes:
        name: Its name, up to 256 bytes; may be empty.
        data: Anything that MessagePack can carry.
        delay: How long it waits before it may run: a duration, or seconds.
        delay_until: When it may run, instead of `delay`.
        attempts: How often its handler may run; None for the worker's option.
        backoff: The pauses between attempts; a duration, or seconds, for equal ones; None for the worker's option.
        job_id: Its id. While it waits, and for an hour longer, further jobs with this id are not added.
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
        is_new: False if its id was taken, so that nothing was added.
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


class PreparedJob(NamedTuple):
    """A checked job and the calls that add it; the last one's reply says whether it was added."""

    job: ChasquiJob
    calls: tuple[Call, ...]

    def added(self, reply: Reply) -> ChasquiJob:
        """Return the job as the server added it, or raise the server's error."""
        if isinstance(reply, ServerError):
            raise reply
        if self.calls[-1].is_function and reply == 0:
            job = self.job
            return ChasquiJob(job.queue, job.id, job.name, job.data, job.attempt, job.created_at, is_new=False)
        return self.job


class CheckedJob(NamedTuple):
    """A valid job.

    Attributes:
        new: The job as passed.
        payload: Its packed data.
        retry: Its own retry rules.
        run_at_ms: When it may run, epoch ms; None for immediately.
    """

    new: NewChasquiJob
    payload: bytes
    retry: RetryOverride | None
    run_at_ms: int | None


class JobBuilder:
    """Builds the calls that add jobs. All are checked before the first is built, so that none is sent if one is wrong.

    Args:
        keys: The queue's keys.
        now_ms: The time, epoch ms.
        ids: New ids, one of which each job takes unless it has its own.
        max_length: About how many jobs the stream may hold.
    """

    def __init__(self, keys: ChasquiKeys, now_ms: int, ids: Iterator[str], max_length: int) -> None:
        self._keys = keys
        self._now_ms = now_ms
        self._created_at = datetime.fromtimestamp(now_ms / 1000, UTC)
        self._ids = ids
        self._max_length = max_length

    def check(self, new: NewChasquiJob) -> CheckedJob:
        """Check a job; raise UsageError if it is invalid."""
        if not isinstance(new, NewChasquiJob):
            raise UsageError(f"A job to add must be a NewChasquiJob, got {new!r}; pass `NewChasquiJob(name, data)`.")
        check_name(new.name)
        run_at_ms = None
        if new.delay is not None or new.delay_until is not None:
            run_at_ms = _run_at_ms(new, self._now_ms)
        if new.job_id is not None:
            check_id(new.job_id)
        retry = retry_override(new.attempts, new.backoff)
        return CheckedJob(new, pack(new.data), retry, run_at_ms)

    def build(self, checked: CheckedJob) -> PreparedJob:
        """Build the calls that add a checked job."""
        new, payload, retry, run_at_ms = checked
        keys, now_ms, name = self._keys, self._now_ms, new.name
        job_id = next(self._ids) if new.job_id is None else new.job_id
        job = ChasquiJob(keys.queue, job_id, name, new.data, 0, self._created_at)
        if retry is None:
            packed = pack([job_id, payload, now_ms, 0])  # what pack_envelope builds, in a quarter of its time
        else:
            packed = pack_envelope(Envelope(job_id, payload, now_ms, retry=retry))
        if run_at_ms is not None and run_at_ms > now_ms:
            ttl_s = max(1, (run_at_ms - now_ms) // 1000) + MARKER_GRACE_S
            member, is_unique = join_member(name, packed), new.job_id is not None
            return PreparedJob(job, _delay_calls(keys, job, is_unique, run_at_ms, ttl_s, member))
        if new.job_id is None:
            return PreparedJob(job, (publish_call(keys, name, packed, self._max_length),))
        call = functions.add(
            stream_key=keys.stream,
            marker_key=keys.marker(job_id),
            ttl_s=MARKER_GRACE_S,
            max_length=self._max_length,
            job_name=name,
            envelope=packed,
        )
        return PreparedJob(job, (call,))


def publish_call(keys: ChasquiKeys, name: str, envelope: bytes, max_length: int) -> Call:
    """Build the call that adds a ready job."""
    named = ("n", name) if name else ()
    return Call("XADD", (keys.stream,), ("MAXLEN", "~", max_length, "*", "d", envelope, *named))


def _run_at_ms(new: NewChasquiJob, now_ms: int) -> int:
    if new.delay is not None and new.delay_until is not None:
        raise InvalidOptionError("`delay` and `delay_until` exclude each other; pass either.")
    if new.delay_until is not None:
        return moment_ms(new.delay_until, "delay_until")
    return now_ms + duration_ms(new.delay, "delay")


def _delay_calls(
    keys: ChasquiKeys, job: ChasquiJob, is_unique: bool, run_at_ms: int, ttl_s: int, member: bytes
) -> tuple[Call, ...]:
    if not is_unique:
        # The original writes no index here and can't cancel such jobs. The index comes first: alone it is harmless.
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


def _dump(job: ChasquiJob) -> str:
    return b64encode(pack(asdict(job) | {"created_at": job.created_at.timestamp()})).decode()


def _load(packed: str) -> ChasquiJob:
    fields = unpack(b64decode(packed))
    return ChasquiJob(**fields | {"created_at": datetime.fromtimestamp(fields["created_at"], UTC)})


def _dump_result(returned: Any) -> str:
    try:
        return b64encode(pack(returned, "The job's result")).decode()
    except PayloadError as error:  # as a worker without sandboxes ends such a job
        raise UnrecoverableError(str(error)) from None


FORM = JobForm(
    home=__name__,
    id_of=lambda job: job.id,
    dump=_dump,
    load=_load,
    dump_result=_dump_result,
    load_result=lambda returned: unpack(b64decode(returned)),
)
