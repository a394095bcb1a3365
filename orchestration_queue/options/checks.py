"""Check counts and texts, and the tags, the share and the pools of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options.base import HashableDict, name_problem

__all__ = [
    "MAX_POOL_SLOTS",
    "MAX_SHARE_WEIGHT",
    "MAX_TAGS",
    "PoolWeights",
    "check_count",
    "check_job_share",
    "check_pool",
    "check_pool_slots",
    "check_share",
    "check_share_weight",
    "check_tag",
    "check_tags",
    "check_weights",
    "is_utf8",
    "pools_from_wire",
    "share_from_wire",
    "tags_from_wire",
]

MAX_TAGS = 20
"""Maximum tags of a job."""
MAX_SHARE_WEIGHT = 1000
"""Maximum weight of a share."""
MAX_POOLS = 8
"""Maximum pools of a job."""
MAX_POOL_SLOTS = 1000
"""Maximum slots of a pool."""
_LONGEST = 100
"""Maximum characters of a tag, and of the name of a share or a pool."""


def check_count(count: object, option: str, least: int = 1) -> int:
    """Return a count.

    Raises:
        InvalidOptionError: It is not a whole number, or too small.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        raise InvalidOptionError(
            f"`{option}` must be a whole number >= {least}, got {count!r}; pass `{option}={max(least, 1)}`."
        )
    return count


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can carry a text: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_tag(tag: Any) -> str:
    """Return a tag.

    Raises:
        InvalidOptionError: It is not 1 to 100 printable characters.
    """
    if not isinstance(tag, str) or not 0 < len(tag) <= _LONGEST or not tag.isprintable():
        raise InvalidOptionError(
            f"A tag must be 1 to {_LONGEST} printable characters, got {tag!r}; pass a word such as 'tenant:acme'."
        )
    return tag


def check_tags(tags: Any) -> tuple[str, ...]:
    """Return the tags of a job, without duplicates.

    Raises:
        InvalidOptionError: It is not a list, a tag is invalid, or there are too many.
    """
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise InvalidOptionError(f"`tags` must be a list of tags, got {tags!r}; pass `tags=['tenant:acme']`.")
    found = tuple(dict.fromkeys(check_tag(tag) for tag in tags))
    if len(found) > MAX_TAGS:
        raise InvalidOptionError(f"`tags` must have at most {MAX_TAGS} tags, got {len(found)}; drop some.")
    return found


def tags_from_wire(stored: object) -> tuple[str, ...]:
    """Return the tags that any client stored, without invalid ones."""
    words = stored if isinstance(stored, list) else []
    sound = [word for word in words if isinstance(word, str) and 0 < len(word) <= _LONGEST and word.isprintable()]
    return tuple(dict.fromkeys(sound))[:MAX_TAGS]


def check_job_share(name: Any) -> str | None:
    """Return the share of a job; None without one.

    Raises:
        InvalidOptionError: It is not 1 to 100 characters without ``:``, ``{`` and ``}``.
    """
    if name is None:
        return None
    if problem := name_problem(name, _LONGEST):
        raise InvalidOptionError(f"Share {name!r} {problem}; pass a word such as 'tenant-a'.")
    return str(name)


def share_from_wire(stored: object) -> str | None:
    """Return the share that any client stored; None if it is missing or invalid."""
    return stored if isinstance(stored, str) and name_problem(stored, _LONGEST) is None else None


def check_share(name: Any) -> str:
    """Return the name of a share.

    Raises:
        UsageError: It is not 1 to 100 characters without ``:``, ``{`` and ``}``.
    """
    if problem := name_problem(name, _LONGEST):
        raise UsageError(f"Share {name!r} {problem}; pass a word such as 'tenant-a'.")
    return str(name)


def check_share_weight(weight: Any) -> int:
    """Return the weight of a share.

    Raises:
        UsageError: It is not an integer from 1 to 1,000.
    """
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= MAX_SHARE_WEIGHT:
        raise UsageError(
            f"`weight` must be a whole number from 1 to {MAX_SHARE_WEIGHT:,}, got {weight!r}; pass `weight=3`."
        )
    return weight


class PoolWeights(HashableDict[int]):
    """Slots by pool."""


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def check_pool(name: Any) -> str:
    """Return the name of a pool.

    Raises:
        UsageError: It is not 1 to 100 characters without ``:``, ``{`` and ``}``.
    """
    if problem := name_problem(name, _LONGEST):
        raise UsageError(f"Pool name {name!r} {problem}; pass a word such as 'warehouse'.")
    return str(name)


def check_pool_slots(slots: Any) -> int:
    """Return a number of slots.

    Raises:
        UsageError: It is not an integer from 0 to 1,000.
    """
    if not _is_whole(slots) or not 0 <= slots <= MAX_POOL_SLOTS:
        raise UsageError(f"`slots` must be a whole number from 0 to {MAX_POOL_SLOTS:,}, got {slots!r}; pass `slots=8`.")
    return int(slots)


def check_weights(pools: Any) -> PoolWeights:
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
