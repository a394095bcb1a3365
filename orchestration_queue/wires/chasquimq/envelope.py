"""A job's envelope as one packed array: its id, payload, age, attempts, and the job's retry rules and pauses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.wires.chasquimq.packing import MAX_U32, MAX_U64, Struct, pack, unpack

__all__ = [
    "BackoffSpec",
    "Envelope",
    "RetryOverride",
    "backoff_ms",
    "join_member",
    "pack_envelope",
    "split_member",
    "unpack_envelope",
]

_FIELDS = ("kind", "delay_ms", "max_delay_ms", "multiplier", "jitter_ms")
# The original's defaults for what a job leaves open.
_INITIAL_MS, _MULTIPLIER, _MAX_MS, _JITTER_MS = 100, 2.0, 30_000, 100
_LATEST_MS = 2**52
"""The longest pause that the server can count."""
_ENVELOPE = ("id", "payload", "created_at_ms", "attempt", "retry")
_PLAIN = (str, bytes, int, int)
"""The types of nearly all envelopes' fields, which need no further look."""
_RETRY = ("max_attempts", "backoff")
_PREFIX_BYTES = 4


@dataclass(frozen=True, slots=True)
class BackoffSpec:
    """The pauses between a job's attempts. None means the worker's default.

    Attributes:
        kind: ``fixed`` or ``exponential``; the wire reads anything else as ``exponential``.
        delay_ms: The first pause.
        max_delay_ms: Maximum pause, before jitter; default 30,000.
        multiplier: Growth of an exponential pause; default 2.
        jitter_ms: Maximum random addition, also beyond ``max_delay_ms``; default 100.
    """

    kind: str
    delay_ms: int
    max_delay_ms: int | None = None
    multiplier: float | None = None
    jitter_ms: int | None = None

    @classmethod
    def fixed(cls, delay_ms: int, *, jitter_ms: int | None = None) -> BackoffSpec:
        """Return equal pauses.

        Raises:
            InvalidOptionError: A duration is not a whole number of milliseconds.
        """
        return cls("fixed", delay_ms, jitter_ms=jitter_ms).checked()

    @classmethod
    def exponential(
        cls, initial_ms: int, *, multiplier: float = 2.0, max_ms: int | None = None, jitter_ms: int | None = None
    ) -> BackoffSpec:
        """Return growing pauses.

        Raises:
            InvalidOptionError: A duration is not a whole number of milliseconds, or the multiplier is not finite.
        """
        return cls("exponential", initial_ms, max_ms, multiplier, jitter_ms).checked()

    def checked(self) -> BackoffSpec:
        """Return the same pauses; raise InvalidOptionError if a client should not write them."""
        if self.kind not in ("fixed", "exponential"):
            raise InvalidOptionError(
                f"`kind` must be 'fixed' or 'exponential', got {self.kind!r}; pass `BackoffSpec.fixed(1000)`."
            )
        for name in ("delay_ms", "max_delay_ms", "jitter_ms"):
            value = getattr(self, name)
            if value is None and name != "delay_ms":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_U64:
                raise InvalidOptionError(
                    f"`{name}` must be a whole number of milliseconds >= 0, got {value!r}; pass `{name}=1000`."
                )
        factor = self.multiplier
        if factor is not None and (isinstance(factor, bool) or not isinstance(factor, int | float)):
            raise InvalidOptionError(f"`multiplier` must be a number, got {factor!r}; pass `multiplier=2.0`.")
        if factor is not None and not math.isfinite(factor):
            raise InvalidOptionError(f"`multiplier` must be finite, got {factor!r}; pass `multiplier=2.0`.")
        return self

    def to_wire(self) -> list[Any]:
        """Return the array in the envelope."""
        multiplier = None if self.multiplier is None else float(self.multiplier)
        return [self.kind, self.delay_ms, self.max_delay_ms, multiplier, self.jitter_ms]

    @classmethod
    def from_wire(cls, value: object) -> BackoffSpec:
        """Read the array; raise PayloadError if it is malformed."""
        fields = Struct(value, "The job's backoff", _FIELDS, len(_FIELDS))
        multiplier = fields.get("multiplier")
        if multiplier is not None and (isinstance(multiplier, bool) or not isinstance(multiplier, int | float)):
            raise fields.error("multiplier", "not a number")
        return cls(
            fields.text("kind"),
            fields.integer("delay_ms"),
            fields.optional_integer("max_delay_ms"),
            None if multiplier is None else float(multiplier),
            fields.optional_integer("jitter_ms"),
        )


_DEFAULT = BackoffSpec("exponential", _INITIAL_MS)


def backoff_ms(spec: BackoffSpec | None, failed: int, chance: float) -> int:
    """Return how long to wait after a failed attempt.

    Args:
        spec: The job's pauses; None for the default.
        failed: How many attempts have failed, this one included.
        chance: A random number from 0 to 1, 1 excluded.
    """
    spec = spec or _DEFAULT
    multiplier = _MULTIPLIER if spec.multiplier is None else spec.multiplier
    longest = _MAX_MS if spec.max_delay_ms is None else spec.max_delay_ms
    try:
        base = float(spec.delay_ms) * (1.0 if spec.kind == "fixed" else multiplier ** (failed - 1))
    except OverflowError:
        # A power with an odd exponent, failed - 1, has the sign of its base.
        base = math.copysign(math.inf, multiplier) if failed % 2 == 0 else math.inf
    pause = 0 if math.isnan(base) else math.floor(min(max(base, 0), longest))
    jitter = _JITTER_MS if spec.jitter_ms is None else spec.jitter_ms
    # The wire adds jitter after the cap, so a pause can exceed the maximum.
    return min(pause + int(chance * jitter), _LATEST_MS)


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
            raise InvalidOptionError(
                f"`attempts` must be a whole number from 0 to {MAX_U32}, got {count!r}; pass `attempts=3`."
            )

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
