"""Lines of a tail: what happens in a queue, and what its jobs log, chosen by kind, text and job."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.operations.event_log import EVENT_TYPES, Event

__all__ = ["GAP", "LOG", "TAIL_KINDS", "LogLine", "TailFilter", "event_text"]

LOG, GAP = "log", "gap"
TAIL_KINDS = (LOG, *sorted(EVENT_TYPES))
"""Kinds of lines that can be asked for."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a job's handler logged.

    Attributes:
        job_id: The job.
        number: Its place in the job's log, from 1.
        text: The line.
        is_old: Whether it may have been logged before its job was followed.
    """

    job_id: str
    number: int
    text: str
    is_old: bool = False


def event_text(event: Event) -> str:
    """Return an event's fields in one line."""
    return " ".join(f"{name}={value}" for name, value in event.fields.items())


@dataclass(frozen=True, slots=True)
class TailFilter:
    """Which lines of a tail to show. Gaps always are.

    Attributes:
        kinds: Types of events, and ``log``; empty for all.
        text: What a line or its job's id contains, in any case.
        job_id: The job; empty for all.

    Raises:
        UsageError: A kind is unknown.
    """

    kinds: Collection[str] = ()
    text: str = ""
    job_id: str = ""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds).difference(TAIL_KINDS))
        if unknown:
            raise UsageError(f"Kind {unknown[0]!r} is unknown; use one of {', '.join(TAIL_KINDS)}.")
        object.__setattr__(self, "text", self.text.casefold())

    @property
    def has_logs(self) -> bool:
        """Whether it shows lines of logs."""
        return not self.kinds or LOG in self.kinds

    def reads_log(self, job_id: str) -> bool:
        """Return whether it shows lines of a job's log."""
        return self.has_logs and self.job_id in ("", job_id)

    def matches(self, kind: str, job_id: str, text: str) -> bool:
        """Return whether a line is shown."""
        if kind == GAP:
            return True
        if (self.kinds and kind not in self.kinds) or (self.job_id and job_id != self.job_id):
            return False
        return not self.text or self.text in text.casefold() or self.text in job_id.casefold()
