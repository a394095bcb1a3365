"""A job as the server holds it, read without losing anything a client of another language wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from orchestration_queue.options import plain_number, wire_number
from orchestration_queue.protocol import codec
from orchestration_queue.states import TERMINAL, JobState

__all__ = ["JobRecord", "pairs", "stored_number", "when"]


def pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """A flat field/value reply as a mapping. Bytes that are no text (vectors) survive as surrogates."""
    words = [word.decode("utf-8", "surrogateescape") for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def when(milliseconds: str | int | None) -> datetime | None:
    """Epoch milliseconds as an aware time; None when absent, empty or zero."""
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC) if milliseconds and int(milliseconds) else None


def stored_number(stored: str | None) -> float:
    """A number that a client of any language stored as text; 0 for what is absent, none, or out of all bounds."""
    try:
        return plain_number(wire_number(float(stored or 0)))
    except ValueError:
        return 0


@dataclass(frozen=True)
class JobRecord:
    """One job's hash, typed.

    Attributes:
        id: The job's id.
        fields: All fields as stored, for what the properties below do not cover.
    """

    id: str
    fields: Mapping[str, str] = field(repr=False)

    def _number(self, name: str) -> int:
        return int(float(self.fields.get(name) or 0))

    @property
    def name(self) -> str:
        """What kind of job it is: the task's name."""
        return self.fields.get("name", "")

    @property
    def state(self) -> JobState:
        """Where it is."""
        return JobState(self.fields.get("state", JobState.WAITING))

    @property
    def is_finished(self) -> bool:
        """Whether it completed or failed for good."""
        return self.state in TERMINAL

    @cached_property
    def data(self) -> Any:
        """The payload.

        Raises:
            PayloadError: It was written with another serializer, or is damaged.
        """
        return codec.decode(self.fields.get("data", "{}"))

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options as stored, in the wire's names; empty when unreadable."""
        stored = self.fields.get("opts", "{}")
        if stored == "{}":
            return {}
        try:
            options = json.loads(stored)
        except ValueError:
            return {}
        return options if isinstance(options, dict) else {}

    @property
    def headers(self) -> dict[str, str]:
        """Short texts that travel with it: what its adder gave it, and the context of the trace it belongs to."""
        stored = self.options.get("headers")
        return {str(name): str(value) for name, value in stored.items()} if isinstance(stored, dict) else {}

    @cached_property
    def result(self) -> Any:
        """What the handler returned; None before that, or when it returned nothing."""
        stored = self.fields.get("returnvalue")
        return None if stored is None else codec.decode(stored, "The job's result")

    @cached_property
    def progress(self) -> Any:
        """What the handler last reported; None before that."""
        stored = self.fields.get("progress")
        if stored is None:
            return None
        try:
            return json.loads(stored)
        except ValueError:
            return stored

    @property
    def failed_reason(self) -> str | None:
        """Why its last attempt failed."""
        return self.fields.get("failedReason") or None

    @property
    def attempts_made(self) -> int:
        """Attempts that have failed so far."""
        return self._number("attemptsMade")

    @property
    def attempts(self) -> int:
        """Attempts that have begun."""
        return self.attempts_made + (self.state in (JobState.ACTIVE, JobState.COMPLETED))

    @property
    def max_attempts(self) -> int:
        """Attempts allowed; 0 means one."""
        return self._number("maxAttempts")

    @property
    def stalled_count(self) -> int:
        """How often a worker was lost while holding it."""
        return self._number("stalledCount")

    @property
    def fallback_index(self) -> int:
        """Which of its fallbacks comes next, counted from 1; 0 before the first retry."""
        return self._number("fallbackIndex")

    @property
    def priority(self) -> int:
        """Its priority; 0 stands outside the order."""
        return self._number("priority")

    @property
    def added_at(self) -> datetime | None:
        """When it was added, by the adder's clock."""
        return when(self.fields.get("timestamp"))

    @property
    def started_at(self) -> datetime | None:
        """When its latest attempt began."""
        return when(self.fields.get("processedOn"))

    @property
    def finished_at(self) -> datetime | None:
        """When it completed or failed."""
        return when(self.fields.get("finishedOn"))

    @property
    def seconds(self) -> float | None:
        """How long its latest attempt took; None while unfinished."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()

    @property
    def parent_id(self) -> str | None:
        """The one job that waits for it, when it has exactly one."""
        return self.fields.get("parentId") or None

    @property
    def parent_queue(self) -> str | None:
        """That job's queue."""
        return self.fields.get("parentQueue") or None

    @property
    def group(self) -> str | None:
        """Its ordering key."""
        return self.fields.get("groupKey") or None
