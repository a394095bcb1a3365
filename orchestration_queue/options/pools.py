"""Pools: how many slots of which pools a job holds while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options.base import name_problem

__all__ = ["MAX_POOL_SLOTS", "PoolWeights", "checked_pool", "checked_pool_slots", "checked_weights", "pools_from_wire"]

MAX_POOLS = 8
"""Maximum pools of a job."""
MAX_POOL_SLOTS = 1000
"""Maximum slots of a pool."""
_LONGEST = 100


class PoolWeights(dict[str, int]):
    """Slots by pool; immutable, so that it can be part of a dict key."""

    def __hash__(self) -> int:  # type: ignore[override]  # of a dict that stays as it is
        return hash(frozenset(self.items()))


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def checked_pool(name: Any) -> str:
    """Return the name of a pool.

    Raises:
        UsageError: It is not 1 to 100 characters without ``:``, ``{`` and ``}``.
    """
    if problem := name_problem(name, _LONGEST):
        raise UsageError(f"Pool name {name!r} {problem}; pass a word such as 'warehouse'.")
    return str(name)


def checked_pool_slots(slots: Any) -> int:
    """Return a number of slots.

    Raises:
        UsageError: It is not an integer from 0 to 1,000.
    """
    if not _is_whole(slots) or not 0 <= slots <= MAX_POOL_SLOTS:
        raise UsageError(f"`slots` must be a whole number from 0 to {MAX_POOL_SLOTS:,}, got {slots!r}; pass `slots=8`.")
    return int(slots)


def checked_weights(pools: Any) -> PoolWeights:
    """Return the slots that a job holds, by pool.

    Raises:
        InvalidOptionError: It is not a dict from names to integers from 1 to 1,000, or has more than 8 entries.
    """
    if not isinstance(pools, Mapping):
        raise InvalidOptionError(f"`pools` must be a dict of slots by pool, got {pools!r}; pass `pools={{'gpu': 1}}`.")
    if len(pools) > MAX_POOLS:
        raise InvalidOptionError(f"`pools` must name at most {MAX_POOLS} pools, got {len(pools)}; drop some.")
    for name, weight in pools.items():
        if problem := name_problem(name, _LONGEST):
            raise InvalidOptionError(f"Pool name {name!r} {problem}; pass a word such as 'warehouse'.")
        if not _is_whole(weight) or not 1 <= weight <= MAX_POOL_SLOTS:
            raise InvalidOptionError(
                f"A job holds 1 to {MAX_POOL_SLOTS:,} slots of pool {name!r}, got {weight!r}; "
                f"pass `pools={{{name!r}: 1}}`."
            )
    return PoolWeights(pools)


def pools_from_wire(stored: object) -> dict[str, int]:
    """Return the slots by pool that any client stored, without invalid entries."""
    weights = stored if isinstance(stored, dict) else {}
    sound = {
        name: weight
        for name, weight in weights.items()
        if name_problem(name, _LONGEST) is None and _is_whole(weight) and 1 <= weight <= MAX_POOL_SLOTS
    }
    return dict(sorted(sound.items())[:MAX_POOLS])
