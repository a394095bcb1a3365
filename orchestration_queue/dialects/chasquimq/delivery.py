"""Entries that a worker reads: jobs to run, and entries for the dead-letter queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestration_queue.dialects.chasquimq.entries import read_fields, read_name
from orchestration_queue.dialects.chasquimq.envelope import Envelope, unpack_envelope
from orchestration_queue.dialects.chasquimq.jobs import ChasquiJob
from orchestration_queue.dialects.chasquimq.options import ChasquiWorkerOptions
from orchestration_queue.errors import PayloadError

__all__ = ["Delivery", "Rejection", "judge"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job to run.

    Attributes:
        entry_id: Its entry in the stream.
        name: Its name.
        packed: Its envelope as it was stored.
        envelope: Its envelope.
        job: The job as its handler sees it.
        max_attempts: How often its handler may run.
    """

    entry_id: str
    name: str
    packed: bytes
    envelope: Envelope
    job: ChasquiJob
    max_attempts: int

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.job.attempt + 1


@dataclass(frozen=True, slots=True)
class Rejection:
    """An entry that can't run.

    Attributes:
        entry_id: The entry.
        packed: The job as it was stored.
        name: Its name, if the original keeps it.
        reason: Why it can't run.
        detail: What is wrong with it.
        attempt: How many attempts have failed.
    """

    entry_id: str
    packed: bytes
    name: str
    reason: str
    detail: str = ""
    attempt: int = 0


def judge(
    queue: str, entry_id: str, flat: Sequence[bytes] | None, deliveries: int, options: ChasquiWorkerOptions
) -> Delivery | Rejection:
    """Decide whether an entry can run.

    Args:
        queue: The queue's name.
        entry_id: The entry.
        flat: Its fields and values.
        deliveries: How often it had been delivered before: each time its worker died, or lost its lease.
        options: The worker's limits.
    """
    fields = read_fields(flat)
    name, packed = read_name(fields), fields.get(b"d")
    if packed is None:
        return Rejection(entry_id, b"", "", "malformed", "missing or non-bytes payload field")
    if len(packed) > options.max_payload_bytes:
        return Rejection(entry_id, packed, name, "oversize_payload")
    try:
        envelope = unpack_envelope(packed)
    except PayloadError as error:
        return Rejection(entry_id, packed, "", "decode_failed", str(error))
    retry = envelope.retry
    own = None if retry is None else retry.max_attempts
    max_attempts = options.attempts if own is None else own
    # The original counts one delivery less, and starts a job whose workers die once too often.
    failed = max(envelope.attempt, deliveries)
    if failed >= max_attempts:
        return Rejection(entry_id, packed, name, "retries_exhausted", attempt=failed)
    try:
        job = ChasquiJob.read(queue, name, envelope.with_attempt(failed))
    except PayloadError as error:
        # No retry can repair this; the original retries and fails them all.
        return Rejection(entry_id, packed, name, "decode_failed", str(error), failed)
    return Delivery(entry_id, name, packed, envelope, job, max_attempts)
