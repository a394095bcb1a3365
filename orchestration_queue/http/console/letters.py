"""Dead letters in groups: those that failed alike are replayed or dropped together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestration_queue.client import DeadLetter

__all__ = ["LetterGroup", "group_letters"]


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Dead letters of one kind, name and reason.

    Attributes:
        kind: What made the jobs fail; empty when their records are gone.
        name: The jobs' name.
        reason: The first line of the reason.
        letters: The letters, newest first.
    """

    kind: str
    name: str
    reason: str
    letters: Sequence[DeadLetter]

    @property
    def newest_at(self) -> datetime | None:
        """When the last of them died."""
        return self.letters[0].added_at

    @property
    def ids(self) -> list[str]:
        """The letters' ids."""
        return [letter.id for letter in self.letters]


def group_letters(letters: Sequence[DeadLetter]) -> list[LetterGroup]:
    """Return letters by kind, name and reason, the largest group first."""
    groups: dict[tuple[str, str, str], list[DeadLetter]] = {}
    for letter in reversed(letters):
        reason = letter.failed_reason.partition("\n")[0]
        groups.setdefault((str(letter.failure_kind or ""), letter.name, reason), []).append(letter)
    return [LetterGroup(*key, found) for key, found in sorted(groups.items(), key=lambda group: -len(group[1]))]
