"""Fair shares: which share a job belongs to, and how many of a queue's starts a share gets."""

from __future__ import annotations

from typing import Any

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options.base import name_problem

__all__ = ["MAX_SHARE_WEIGHT", "checked_job_share", "checked_share", "checked_share_weight"]

MAX_SHARE_WEIGHT = 1000
"""Maximum weight of a share."""
_LONGEST = 100


def checked_job_share(name: Any) -> str | None:
    """Return the share of a job; None without one.

    Raises:
        InvalidOptionError: It is not 1 to 100 characters without ``:``, ``{`` and ``}``.
    """
    if name is None:
        return None
    if problem := name_problem(name, _LONGEST):
        raise InvalidOptionError(f"Share {name!r} {problem}; pass a word such as 'tenant-a'.")
    return str(name)


def checked_share(name: Any) -> str:
    """Return the name of a share.

    Raises:
        UsageError: It is not 1 to 100 characters without ``:``, ``{`` and ``}``.
    """
    if problem := name_problem(name, _LONGEST):
        raise UsageError(f"Share {name!r} {problem}; pass a word such as 'tenant-a'.")
    return str(name)


def checked_share_weight(weight: Any) -> int:
    """Return the weight of a share.

    Raises:
        UsageError: It is not an integer from 1 to 1,000.
    """
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= MAX_SHARE_WEIGHT:
        raise UsageError(
            f"`weight` must be a whole number from 1 to {MAX_SHARE_WEIGHT:,}, got {weight!r}; pass `weight=3`."
        )
    return weight
