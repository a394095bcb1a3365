"""What an examination finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Severity", "count", "hint", "problem"]


class Severity(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"
    """Jobs are lost, stand still, or will."""
    HINT = "hint"
    """Good to know, and perhaps meant so."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        severity: How bad it is.
        where: The server, or the queue.
        what: What was found.
        why: Why it matters.
        action: What to do.
        fix: Does that, where it is safe to; returns what was done. It raises :class:`StateError` when it turns out that
            it cannot be done safely at present.
    """

    severity: Severity
    where: str
    what: str
    why: str
    action: str
    fix: Callable[[], str] | None = None


def problem(where: str, what: str, why: str, action: str, fix: Callable[[], str] | None = None) -> Finding:
    """Something that has to be mended."""
    return Finding(Severity.PROBLEM, where, what, why, action, fix)


def hint(where: str, what: str, why: str, action: str, fix: Callable[[], str] | None = None) -> Finding:
    """Something to know."""
    return Finding(Severity.HINT, where, what, why, action, fix)


def count(number: int, noun: str) -> str:
    """How many there are, in words: ``1 job``, ``2,000 jobs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
