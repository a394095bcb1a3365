"""Shards: plain queues that together form one, and the shard of each key."""

from __future__ import annotations

from hashlib import blake2b

from orchestration_queue.errors import InvalidOptionError, UsageError

__all__ = ["MOST_SHARDS", "check_shards", "shard_name", "shard_names", "shard_of"]

MOST_SHARDS = 1024
"""A worker process has connections for each shard that it serves."""

# The generator of jump consistent hash (Lamping and Veach).
_FACTOR = 2862933555777941757
_MASK = (1 << 64) - 1


def check_shards(shards: int) -> int:
    """Return a number of shards.

    Raises:
        InvalidOptionError: It is not an integer from 1 to 1,024.
    """
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= MOST_SHARDS:
        raise InvalidOptionError(
            f"`shards` must be a whole number from 1 to {MOST_SHARDS}, got {shards!r}; pass `shards=8`."
        )
    return shards


def shard_name(queue: str, shard: int) -> str:
    """Return the plain queue's name of one shard."""
    return f"{queue}.{shard}"


def shard_names(queue: str, shards: int) -> tuple[str, ...]:
    """Return the plain queues' names of all shards, such as ``events.0`` to ``events.7``.

    Consecutive shard numbers lie in different quarters of a cluster's slots.

    Raises:
        InvalidOptionError: The number of shards is out of range.
    """
    return tuple(shard_name(queue, shard) for shard in range(check_shards(shards)))


def shard_of(key: str, shards: int) -> int:
    """Return the shard of a key, the same in every process and every version.

    With one shard more, one key in that many moves, and only to the new shard: this is the jump consistent hash of
    Lamping and Veach, of the key's BLAKE2b digest of 8 bytes, read with its lowest byte first.

    Raises:
        InvalidOptionError: The number of shards is out of range.
        UsageError: The key is empty, or not a string.
    """
    if not isinstance(key, str) or not key:
        raise UsageError(f"`key` must be a non-empty string, got {key!r}; pass a key that its jobs share.")
    state = int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
    shard, jump = 0, 0
    check_shards(shards)
    while jump < shards:
        shard = jump
        state = (state * _FACTOR + 1) & _MASK
        jump = int((shard + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return shard
