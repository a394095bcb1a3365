"""ULIDs, the ids of jobs whose producer names none: 48 bits of time, 80 of chance, sortable as text."""

from __future__ import annotations

__all__ = ["ulid"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_TIME_BITS, _CHANCE_BITS = 48, 80
_SHIFTS = range(120, -1, -10)
"""Two characters at a time: 26 of them hold 130 bits."""


def ulid(at_ms: int, chance: int) -> str:
    """Build a ULID.

    Args:
        at_ms: Epoch milliseconds.
        chance: 80 random bits.
    """
    number = (at_ms % (1 << _TIME_BITS)) << _CHANCE_BITS | chance % (1 << _CHANCE_BITS)
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
