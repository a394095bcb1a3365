"""A job's envelope: its id, payload, age, attempts and own retry rules, as one packed array."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from orchestration_queue.dialects.chasquimq.backoff import BackoffSpec
from orchestration_queue.dialects.chasquimq.packing import MAX_U32, Struct, pack, unpack
from orchestration_queue.errors import InvalidOptionError

__all__ = ["Envelope", "RetryOverride", "join_member", "pack_envelope", "split_member", "unpack_envelope"]

_ENVELOPE = ("id", "payload", "created_at_ms", "attempt", "retry")
_PLAIN = (str, bytes, int, int)
"""The types of nearly all envelopes' fields, which need no further look."""
_RETRY = ("max_attempts", "backoff")
_PREFIX_BYTES = 4


@dataclass(frozen=True, slots=True)
class RetryOverride:
    """A job's own retry rules; None means the worker's.

    Attributes:
        max_attempts: How often its handler may run.
        backoff: The pauses between its attempts.

    Raises:
        InvalidOptionError: ``max_attempts`` is not an integer from 0 to 2^32 - 1.
    """

    max_attempts: int | None = None
    backoff: BackoffSpec | None = None

    def __post_init__(self) -> None:
        count = self.max_attempts
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_U32):
            raise InvalidOptionError(f"`attempts` must be a whole number from 0 to {MAX_U32}, got {count!r}.")

    def to_wire(self) -> list[Any]:
        """Return the array in the envelope."""
        return [self.max_attempts, self.backoff.to_wire() if self.backoff else None]

    @classmethod
    def from_wire(cls, value: object) -> RetryOverride:
        """Read the array; raise PayloadError if it is malformed."""
        fields = Struct(value, "The job's retry override", _RETRY, len(_RETRY))
        backoff = fields.get("backoff")
        return cls(
            fields.optional_integer("max_attempts", MAX_U32),
            None if backoff is None else BackoffSpec.from_wire(backoff),
        )


@dataclass(frozen=True, slots=True)
class Envelope:
    """One job on the wire.

    Attributes:
        id: The job's id.
        payload: Its data, packed on their own.
        created_at_ms: When it was added, on its producer's clock.
        attempt: How many of its attempts have failed.
        retry: Its own retry rules.
    """

    id: str
    payload: bytes
    created_at_ms: int
    attempt: int = 0
    retry: RetryOverride | None = None

    def with_attempt(self, attempt: int) -> Envelope:
        """Return the envelope with another number of failed attempts."""
        return self if attempt == self.attempt else replace(self, attempt=attempt)


def pack_envelope(envelope: Envelope) -> bytes:
    """Pack an envelope, in the oldest format that can represent it."""
    fields: list[Any] = [envelope.id, envelope.payload, envelope.created_at_ms, envelope.attempt]
    if envelope.retry is not None:
        fields.append(envelope.retry.to_wire())
    return pack(fields)


def unpack_envelope(packed: bytes) -> Envelope:
    """Read an envelope in any format.

    Raises:
        PayloadError: It is malformed.
    """
    value = unpack(packed, "The job's envelope")
    if type(value) is list and tuple(map(type, value)) == _PLAIN and value[2] >= 0 and 0 <= value[3] <= MAX_U32:
        return Envelope(*value)
    fields = Struct(value, "The job's envelope", _ENVELOPE, 3)
    retry = fields.get("retry")
    return Envelope(
        id=fields.text("id"),
        payload=fields.binary("payload"),
        created_at_ms=fields.integer("created_at_ms"),
        attempt=fields.integer("attempt", MAX_U32) if fields.has("attempt") else 0,
        retry=None if retry is None else RetryOverride.from_wire(retry),
    )


def join_member(name: str, envelope: bytes) -> bytes:
    """Build the member of a delayed job: its name, after the name's length, and its envelope."""
    encoded = name.encode()
    return len(encoded).to_bytes(_PREFIX_BYTES, "little") + encoded + envelope


def split_member(member: bytes) -> tuple[str, bytes] | None:
    """Return the name and the envelope of a delayed job; None if its length prefix doesn't fit."""
    end = _PREFIX_BYTES + int.from_bytes(member[:_PREFIX_BYTES], "little")
    if len(member) < _PREFIX_BYTES or end > len(member):
        return None
    return member[_PREFIX_BYTES:end].decode(errors="replace"), member[end:]
