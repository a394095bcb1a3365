"""The pauses between a job's attempts, computed as ChasquiMQ computes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from orchestration_queue.dialects.chasquimq.packing import MAX_U64, Struct
from orchestration_queue.errors import InvalidOptionError

__all__ = ["BackoffSpec", "backoff_ms"]

_FIELDS = ("kind", "delay_ms", "max_delay_ms", "multiplier", "jitter_ms")
_INITIAL_MS, _MULTIPLIER, _MAX_MS, _JITTER_MS = 100, 2.0, 30_000, 100
_LATEST_MS = 2**52
"""The longest pause that the server can count."""


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
            raise InvalidOptionError(f"`kind` must be 'fixed' or 'exponential', got {self.kind!r}.")
        for name in ("delay_ms", "max_delay_ms", "jitter_ms"):
            value = getattr(self, name)
            if value is None and name != "delay_ms":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_U64:
                raise InvalidOptionError(f"`{name}` must be a whole number of milliseconds >= 0, got {value!r}.")
        factor = self.multiplier
        if factor is not None and (isinstance(factor, bool) or not isinstance(factor, int | float)):
            raise InvalidOptionError(f"`multiplier` must be a number, got {factor!r}.")
        if factor is not None and not math.isfinite(factor):
            raise InvalidOptionError(f"`multiplier` must be finite, got {factor!r}.")
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
        base = math.copysign(math.inf, multiplier) if failed % 2 == 0 else math.inf
    pause = 0 if math.isnan(base) else math.floor(min(max(base, 0), longest))
    jitter = _JITTER_MS if spec.jitter_ms is None else spec.jitter_ms
    # The wire adds jitter after the cap, so a pause can exceed the maximum.
    return min(pause + int(chance * jitter), _LATEST_MS)
