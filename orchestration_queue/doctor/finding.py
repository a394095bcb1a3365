"""What a check finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from orchestration_queue.errors import ServerError

__all__ = ["Finding", "Severity", "all_checks", "count", "hint", "problem"]


class Severity(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"
    """Jobs are lost or blocked, or will be."""
    HINT = "hint"
    """Worth knowing; may be intended."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One deviation from what is expected.

    Attributes:
        severity: How bad it is.
        where: The server, or the queue.
        what: What was found.
        why: Why it matters.
        action: What to do.
        fix: Performs the action where that is safe and returns what was done. Raises :class:`StateError` when it
            cannot be done safely at present.
    """

    severity: Severity
    where: str
    what: str
    why: str
    action: str
    fix: Callable[[], str] | None = None


def problem(where: str, what: str, why: str, action: str, fix: Callable[[], str] | None = None) -> Finding:
    """Build a finding that needs a repair."""
    return Finding(Severity.PROBLEM, where, what, why, action, fix)


def hint(where: str, what: str, why: str, action: str, fix: Callable[[], str] | None = None) -> Finding:
    """Build a finding that is worth knowing."""
    return Finding(Severity.HINT, where, what, why, action, fix)


class Inspected(Protocol):
    """What checks inspect."""

    @property
    def name(self) -> str:
        """Its name in findings."""


T = TypeVar("T", bound=Inspected)


def all_checks(inspected: T, checks: Sequence[Callable[[T], Iterator[Finding]]]) -> Iterator[Finding]:
    """Run all checks of something; a refusal of the server ends them and is a finding, too."""
    try:
        for check in checks:
            yield from check(inspected)
    except ServerError as error:
        yield problem(
            inspected.name,
            f"It cannot be checked: {str(error).rstrip('.')}",
            "its problems stay unknown",
            "repair the server or the user's rights first",
        )


def count(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 job``, ``2,000 jobs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
