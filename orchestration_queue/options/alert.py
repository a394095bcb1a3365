"""Rules of alerts: what is watched, from when on it is told, and to whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options.base import MAX_COUNT, Options, name_problem
from orchestration_queue.options.durations import DurationField, seconds
from orchestration_queue.options.usage import plain_number

__all__ = ["MAX_SILENCE", "AlertKind", "AlertRule", "check_alert", "check_receiver"]

MAX_SILENCE = timedelta(days=30)
"""The maximum duration of a silence."""
_MOST_RECEIVERS = 10
_LONGEST_NOTE = 500
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RECEIVER = re.compile(r"[a-z0-9][a-z0-9-]{0,49}")


class AlertKind(StrEnum):
    """What a rule watches, and the threshold above which it fires."""

    FAILURE_RATE = "failure_rate"
    """Failed jobs of those that ended within the window, from 0 to 1; default 0.1."""
    OLDEST_WAITING = "oldest_waiting"
    """Seconds for which the oldest waiting job has been ready; default 600. Prioritized and LIFO jobs don't count."""
    NO_WORKER = "no_worker"
    """No worker serves the queue, although it is not paused and has ready jobs, or the rule names exactly this queue;
    without a threshold."""
    DEAD_LETTERS = "dead_letters"
    """Jobs in the queue's dead-letter queue; default 0."""
    SCHEDULE_OVERDUE = "schedule_overdue"
    """Seconds for which a run of one of the queue's schedules is overdue; default 60."""
    FLOW_LATE = "flow_late"
    """Seconds since an unfinished flow of the queue was submitted; default 3600."""
    BACKLOG = "backlog"
    """Ready jobs; default 1000."""
    POOL_EXHAUSTED = "pool_exhausted"
    """Jobs that wait for slots of a pool; default 0. The rule's ``queue`` is the pool, or a pattern of pools."""
    MEMORY = "memory"
    """The server's used memory, as a part of its `maxmemory`, or else of its machine's, from 0 to 1; default 0.8."""


_DEFAULTS: Mapping[AlertKind, float | None] = {
    AlertKind.FAILURE_RATE: 0.1,
    AlertKind.OLDEST_WAITING: 600,
    AlertKind.NO_WORKER: None,
    AlertKind.DEAD_LETTERS: 0,
    AlertKind.SCHEDULE_OVERDUE: 60,
    AlertKind.FLOW_LATE: 3600,
    AlertKind.BACKLOG: 1000,
    AlertKind.POOL_EXHAUSTED: 0,
    AlertKind.MEMORY: 0.8,
}
_PARTS = (AlertKind.FAILURE_RATE, AlertKind.MEMORY)
_WINDOW = timedelta(minutes=5)
_MINIMUM = 10
_KEEP_FIRING = timedelta(minutes=5)


class AlertRule(Options):
    """A rule: it fires while what it watches is above its threshold.

    Example:
        >>> AlertRule(kind="backlog", queue="mail-*", threshold=5000, to=["ops"])
    """

    kind: AlertKind
    """What it watches: a value of :class:`AlertKind`."""
    to: tuple[str, ...]
    """The receivers, 1 to 10, by the names that they have where ``oq alert run`` runs."""
    queue: Annotated[str, Field(strict=True)] = "*"
    """The queue (or pool), or a pattern such as ``mail-*``, which matches no dead-letter queue. The memory is the
    server's, whatever the queue."""
    threshold: Annotated[float, Field(strict=True, ge=0, le=MAX_COUNT)] | None = None
    """The value above which it fires; default: the kind's."""
    window: Annotated[DurationField, Field(ge=timedelta(minutes=1), le=timedelta(days=1))] | None = None
    """Of a failure rate: the period that counts, in whole minutes; default 5 minutes."""
    minimum: Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)] | None = None
    """Of a failure rate: it fires only if at least this many jobs ended within the window; default 10."""
    pending: Annotated[DurationField, Field(ge=timedelta(0), le=timedelta(days=1))] = timedelta(0)
    """How long the value must stay above the threshold before the rule fires; default 0."""
    keep_firing: Annotated[DurationField, Field(ge=timedelta(0), le=timedelta(days=1))] = _KEEP_FIRING
    """How long the value must no longer be above the threshold before the rule is resolved; default 5 minutes. A value
    that comes and goes within this time is one incident."""
    note: Annotated[str, Field(strict=True)] = ""
    """Text for who receives it, such as the address of a runbook; at most 500 characters."""

    @field_validator("to", mode="before")
    @classmethod
    def _check_receivers(cls, given: Any) -> tuple[str, ...]:
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise InvalidOptionError(f"`to` must be a list of receivers, got {given!r}; pass `to=['ops']`.")
        found = tuple(dict.fromkeys(check_receiver(name) for name in given))
        if not 1 <= len(found) <= _MOST_RECEIVERS:
            raise InvalidOptionError(f"`to` must name 1 to {_MOST_RECEIVERS} receivers, got {len(found)}.")
        return found

    @field_validator("queue")
    @classmethod
    def _check_queue(cls, queue: str) -> str:
        if problem := name_problem(queue):
            raise InvalidOptionError(f"`queue` {queue!r} {problem}; pass a queue, or a pattern such as 'mail-*'.")
        return queue

    @field_validator("note")
    @classmethod
    def _check_note(cls, note: str) -> str:
        if len(note) > _LONGEST_NOTE or not note.isprintable():
            raise InvalidOptionError(f"`note` must be at most {_LONGEST_NOTE} printable characters, got {note[:80]!r}.")
        return note

    @model_validator(mode="after")
    def _fill(self) -> Self:
        """Replace None by the defaults, and refuse what the kind has no use for."""
        default = _DEFAULTS[self.kind]
        if default is None and self.threshold is not None:
            raise InvalidOptionError(f"A rule of kind {self.kind} has no `threshold`; drop it.")
        if self.kind in _PARTS and self.threshold is not None and self.threshold >= 1:
            raise InvalidOptionError(
                f"The `threshold` of kind {self.kind} is a part of all, from 0 to less than 1, got {self.threshold:g}; "
                "pass 0.2 for 20 %."
            )
        filled: dict[str, Any] = {} if self.threshold is not None else {"threshold": default}
        if self.kind is AlertKind.FAILURE_RATE:
            filled |= {} if self.window is not None else {"window": _WINDOW}
            filled |= {} if self.minimum is not None else {"minimum": _MINIMUM}
        elif self.window is not None or self.minimum is not None:
            name = "window" if self.window is not None else "minimum"
            raise InvalidOptionError(f"`{name}` applies to rules of kind failure_rate, not {self.kind}; drop it.")
        for name, value in filled.items():
            object.__setattr__(self, name, value)  # it is frozen for everyone else
        return self

    @property
    def is_pattern(self) -> bool:
        """Whether it may concern several queues."""
        return any(letter in self.queue for letter in "*?[")

    def describe(self) -> dict[str, Any]:
        """Return its fields as JSON has them, with durations in seconds; the same fields make the same rule."""
        return {
            "kind": str(self.kind),
            "queue": self.queue,
            "threshold": None if self.threshold is None else plain_number(self.threshold),
            "window": None if self.window is None else plain_number(seconds(self.window)),
            "minimum": self.minimum,
            "pending": plain_number(seconds(self.pending)),
            "keep_firing": plain_number(seconds(self.keep_firing)),
            "to": list(self.to),
            "note": self.note,
        }


def check_alert(name: Any) -> str:
    """Return the name of a rule.

    Raises:
        UsageError: It is not 1 to 100 letters, digits, dots, hyphens and underscores.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"A rule's name must be 1 to 100 letters, digits, '.', '-' and '_', got {name!r}; pass a word such as "
            "'mail-backlog'."
        )
    return name


def check_receiver(name: Any) -> str:
    """Return the name of a receiver.

    Raises:
        InvalidOptionError: It is not 1 to 50 small letters, digits and hyphens.
    """
    if not isinstance(name, str) or not _RECEIVER.fullmatch(name):
        raise InvalidOptionError(
            f"A receiver's name must be 1 to 50 small letters, digits and '-', got {name!r}; pass a word such as "
            "'ops', which OQ_ALERT_RECEIVER_OPS of the process that sends alerts defines."
        )
    return name
