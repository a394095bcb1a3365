"""Dead letters in groups: those that failed alike are replayed or dropped together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from orchestration_queue.protocol.operations.dead_letters import DeadLetter

__all__ = ["LetterGroup", "group_letters"]


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Dead letters that failed alike.

    Attributes:
        kind: What made the jobs fail; empty when their records are gone.
        name: The jobs' name; of the newest, when they are grouped by kind alone.
        reason: The first line of the reason, likewise.
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


def group_letters(letters: Sequence[DeadLetter], by: Literal["kind", "reason"] = "reason") -> list[LetterGroup]:
    """Return letters, oldest first, in groups, the largest group first.

    Args:
        letters: The letters.
        by: ``kind`` for a group per kind of failure; ``reason`` for one per kind, job's name and reason.
    """
    groups: dict[tuple[str, ...], list[DeadLetter]] = {}
    for letter in reversed(letters):
        kind = str(letter.failure_kind or "")
        key = (kind,) if by == "kind" else (kind, letter.name, _first_line(letter))
        groups.setdefault(key, []).append(letter)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return [LetterGroup(key[0], found[0].name, _first_line(found[0]), found) for key, found in ordered]


def _first_line(letter: DeadLetter) -> str:
    return letter.failed_reason.partition("\n")[0]
