"""ULIDs, the ids of jobs whose producer names none: 48 bits of time, 80 of chance, sortable as text."""

from __future__ import annotations

__all__ = ["ulid"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_BITS, _CHANCE_BITS, _DIGITS = 48, 80, 26


def ulid(at_ms: int, chance: int) -> str:
    """Build a ULID.

    Args:
        at_ms: Epoch milliseconds.
        chance: 80 random bits.
    """
    number = (at_ms % (1 << _TIME_BITS)) << _CHANCE_BITS | chance % (1 << _CHANCE_BITS)
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(5 * (_DIGITS - 1), -1, -5))
