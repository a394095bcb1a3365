"""Dead letters in groups: those that failed alike are replayed or dropped together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestration_queue.client import DeadLetter
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.operations.conversation import Conversation

__all__ = ["LetterGroup", "group_letters", "kinds_of"]

_FIELDS = ("failureKind", "failureAttempt", "attemptsMade", "failedReason", "state")


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


def kinds_of(keys: QueueKeys, letters: Sequence[DeadLetter]) -> Conversation[dict[str, str]]:
    """Return the failure kinds of letters by id, as far as the original jobs' records are kept. One exchange."""
    records = yield from job_records.jobs([(keys, letter.original_job_id) for letter in letters], _FIELDS)
    found = zip(letters, records, strict=True)
    return {letter.id: str(record.failure_kind or "") for letter, record in found if record is not None}


def group_letters(letters: Sequence[DeadLetter], kinds: Mapping[str, str]) -> list[LetterGroup]:
    """Return letters by kind, name and reason, the largest group first."""
    groups: dict[tuple[str, str, str], list[DeadLetter]] = {}
    for letter in reversed(letters):
        reason = letter.failed_reason.partition("\n")[0]
        groups.setdefault((kinds.get(letter.id, ""), letter.name, reason), []).append(letter)
    return [LetterGroup(*key, found) for key, found in sorted(groups.items(), key=lambda group: -len(group[1]))]
