"""Job records: the fields of a job as the server stores them, typed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from orchestration_queue.errors import STALLED_REASON, PayloadError
from orchestration_queue.options import headers_from_wire, plain_number, pools_from_wire, tags_from_wire, wire_number
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.history import HistoryEntry, HistoryEvent, read_history
from orchestration_queue.states import TERMINAL, FailureKind, JobState

__all__ = ["SHOWN", "JobRecord", "entry_job_id", "pairs", "stored_number", "when", "whole_number"]

_WHOLE = re.compile(r"-?[0-9]{1,15}")
_WHOLE_FIELDS = (
    "attemptsMade", "maxAttempts", "stalledCount", "fallbackIndex", "priority", "timestamp", "processedOn",
    "finishedOn", "orderingSeq", "expireAt", "depsCompleted",
)  # fmt: skip
_TEXT_FIELDS = (
    "name", "groupKey", "orderingKey", "parentId", "parentQueue", "budgetKey", "schedulerName", "parentIds",
)  # fmt: skip
SHOWN: Final[Mapping[str, str]] = {
    of.removeprefix("is_"): of
    for of in (
        "id", "name", "state", "added_at", "started_at", "finished_at", "seconds", "attempts_made", "max_attempts",
        "stalled_count", "priority", "failed_reason", "failure_kind", "traceback", "history", "tags", "pools", "share",
        "group", "headers", "is_tracked", "progress", "data", "result", "options", "parent_id", "parent_queue",
    )
}  # fmt: skip
"""What views show of a job, in this order: the name in JSON, and the property. `oq`, HTTP, and OpenAPI follow it."""
_LONG = frozenset({"traceback", "history"})
_PAYLOADS = {"data": "data", "result": "returnvalue"}
_PLAIN_DIGITS = 13
"""Digits of epoch milliseconds until 2286: any shorter number is also a valid time."""
_KINDS = frozenset(FailureKind)
_KINDS_OF_SERVER = frozenset({FailureKind.CANCELLED, FailureKind.STALLED, FailureKind.EXPIRED})
"""Kinds that the server's functions write themselves; workers record all others."""
_KIND_OF_REASON = {
    "revoked": FailureKind.CANCELLED,
    "expired": FailureKind.EXPIRED,
    STALLED_REASON: FailureKind.STALLED,
    "Job timeout exceeded": FailureKind.TIMEOUT,
    "rate limited": FailureKind.RATE_LIMITED,
}
"""Failed reasons that the wire's functions write."""


def pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """Return a flat field/value reply as a dict. Bytes that are not text (vectors) survive as surrogates."""
    words = [word.decode("utf-8", "surrogateescape") for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def entry_job_id(fields: Sequence[bytes] | None) -> str:
    """Return the job that a stream entry names; empty if it names none, as a deleted one.

    Every client writes it first; decoding the other fields would double the cost of reading a queue's ids.
    """
    if not fields:
        return ""
    if fields[0] == b"jobId":
        return fields[1].decode("utf-8", "surrogateescape")
    return pairs(fields).get("jobId", "")


def when(milliseconds: str | int | None) -> datetime | None:
    """Return epoch milliseconds as an aware datetime; None if absent, empty, zero, or not a time."""
    number = milliseconds if isinstance(milliseconds, int) else whole_number(milliseconds)
    try:
        return datetime.fromtimestamp(number / 1000, UTC) if number else None
    except (OverflowError, OSError, ValueError):
        return None


def whole_number(stored: str | None) -> int | None:
    """Return an integer as every client of the wire writes it; None for anything else, such as ``inf``."""
    if stored is None:
        return None
    if stored == "0":  # most counts
        return 0
    return int(stored) if _WHOLE.fullmatch(stored) else None


def stored_number(stored: str | None) -> float:
    """Return a number that any client stored as text; 0 if it is absent, invalid, or out of range."""
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
        return whole_number(self.fields.get(name)) or 0

    def describe(self, *, in_full: bool = True) -> dict[str, Any]:
        """Return the record as every view shows it, by the names of ``SHOWN``.

        Args:
            in_full: Also the traceback and the history, which can have 32 KiB.
        """
        names = {name: of for name, of in SHOWN.items() if in_full or name not in _LONG}
        return {name: self.readable(of) for name, of in names.items()}

    def readable(self, name: str) -> Any:
        """Return a property; the stored text of a state that is unknown, or of another serializer's payload."""
        if name == "state":
            return self.fields.get("state", "unknown")
        try:
            return getattr(self, name)
        except PayloadError:
            return self.fields.get(_PAYLOADS[name])

    @property
    def name(self) -> str:
        """What kind of job it is: the task's name."""
        return self.fields.get("name", "")

    @property
    def state(self) -> JobState:
        """Its state."""
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
        """The options as stored, with the wire's names; empty if unreadable."""
        return self._stored_options or {}

    def fill_options(self, defaults: Mapping[str, Any]) -> None:
        """Set options, with the wire's names, that the job was added without."""
        if defaults:
            self.__dict__["options"] = {**defaults, **self.options}

    @cached_property
    def _stored_options(self) -> dict[str, Any] | None:
        return _read_object(self.fields.get("opts", ""))

    @property
    def headers(self) -> dict[str, str]:
        """Its headers: strings that its producer set, and the trace context it belongs to."""
        return headers_from_wire(self.options)

    @property
    def is_tracked(self) -> bool:
        """Whether retention keeps it."""
        return "tracked" in self.fields

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""
        stored = self.fields.get("tags")
        if stored is None:  # added by a library without tags, or just now
            return tags_from_wire(self.options.get("tags"))
        try:
            return tags_from_wire(json.loads(stored))
        except (ValueError, RecursionError):
            return ()

    @property
    def pools(self) -> dict[str, int]:
        """Slots that it holds while it runs, by pool."""
        return pools_from_wire(self.options.get("pools"))

    @property
    def share(self) -> str | None:
        """The share that it belongs to; None without one."""
        return self.fields.get("share")

    @cached_property
    def result(self) -> Any:
        """What the handler returned; None before that, or if it returned nothing."""
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
        except (ValueError, RecursionError):
            return stored

    @property
    def failure_kind(self) -> str | None:
        """The kind of failure of its last attempt; None if it has not failed.

        It is the exception's qualified class, the kind of a ``Failed``, or a ``FailureKind``. Workers in other
        languages store no kind; theirs is derived from the reasons that the wire itself gives.
        """
        stored = self.fields.get("failureKind", "")
        if stored and (stored in _KINDS_OF_SERVER or not self._has_failed_since):
            return FailureKind(stored) if stored in _KINDS else stored
        reason = self.failed_reason
        return None if reason is None else _KIND_OF_REASON.get(reason, FailureKind.ERROR)

    @property
    def traceback(self) -> str | None:
        """The end of the traceback of its last failed attempt; None without one."""
        return None if self._has_failed_since else self.fields.get("traceback") or None

    @property
    def _has_failed_since(self) -> bool:
        """Whether an attempt failed after the recorded one, on a worker that records neither kind nor traceback."""
        noted = whole_number(self.fields.get("failureAttempt", ""))
        return noted is not None and self.attempts_made > noted

    @cached_property
    def history(self) -> tuple[HistoryEntry, ...]:
        """Its history without successes, oldest first: failed attempts, takeovers, manual retries, cancellations.

        The last 20 are kept, in at most 32 KiB: the oldest lose their tracebacks first.
        """
        return read_history(self.fields.get("history", ""))

    @property
    def problem(self) -> str | None:
        """Why no worker can run it: the first damaged field; None for a valid record."""
        damage = None if self._is_plain else self._damage()
        if damage is None and self._stored_options is None:
            return f"its field 'opts' must be a JSON object, got {self.fields['opts'][:40]!r}"
        return damage

    @property
    def _is_plain(self) -> bool:
        """Whether its numbers are short and its texts ASCII, as nearly always: one check of all fields."""
        numbers = [self.fields.get(name, "") for name in _WHOLE_FIELDS]
        digits = "".join(numbers)
        texts = "".join([self.fields.get(name, "") for name in _TEXT_FIELDS])
        is_whole = digits.isascii() and (not digits or digits.isdigit())
        return is_whole and texts.isascii() and max(map(len, numbers)) <= _PLAIN_DIGITS

    def _damage(self) -> str | None:
        for name in _WHOLE_FIELDS:
            stored = self.fields.get(name)
            if stored and whole_number(stored) is None:
                return f"its field {name!r} must be a whole number, got {stored[:40]!r}"
        for name in ("timestamp", "processedOn", "finishedOn"):
            if (stored := self.fields.get(name)) and whole_number(stored) and when(stored) is None:
                return f"its field {name!r} is not a time: {stored[:40]!r}"
        for name in _TEXT_FIELDS:
            if not _is_unicode(stored := self.fields.get(name, "")):
                return f"its field {name!r} must be text, got other bytes: {stored[:40]!r}"
        return None

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
        """Its priority; 0 means none."""
        return self._number("priority")

    @property
    def added_at(self) -> datetime | None:
        """When it was added, by the producer's clock."""
        return when(self.fields.get("timestamp"))

    @property
    def started_at(self) -> datetime | None:
        """When its latest attempt began."""
        return when(self.fields.get("processedOn"))

    @property
    def latest_start(self) -> datetime | None:
        """When its latest attempt started. The wire overwrites the start of a failed one, which is in the history."""
        if self.fields.get("state") == "failed" and self.history:
            last = self.history[-1]
            if last.event is HistoryEvent.FAILED and last.started_at is not None:
                return last.started_at
        return self.started_at

    @property
    def finished_at(self) -> datetime | None:
        """When it completed or failed."""
        return when(self.fields.get("finishedOn"))

    @property
    def seconds(self) -> float | None:
        """How long its latest attempt took; None while unfinished."""
        if self.latest_start is None or self.finished_at is None:
            return None
        return (self.finished_at - self.latest_start).total_seconds()

    @property
    def parent_id(self) -> str | None:
        """The only job that waits for it; None if none or several do."""
        return self.fields.get("parentId") or None

    @property
    def parent_queue(self) -> str | None:
        """That job's queue."""
        return self.fields.get("parentQueue") or None

    @property
    def group(self) -> str | None:
        """Its ordering key."""
        return self.fields.get("groupKey") or None


def _is_unicode(text: str) -> bool:
    return text.isascii() or text.encode("utf-8", "replace").decode() == text


def _read_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object; None if the text is not one, or is nested too deeply to be read."""
    if text in ("", "{}"):
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
