"""Events inside one worker, for tests, metrics and dashboards."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from orchestration_queue.protocol.record import JobRecord

__all__ = ["Announcer", "Listener", "WorkerEvent", "WorkerEventType"]

log = logging.getLogger("orchestration_queue.worker")


class WorkerEventType(StrEnum):
    """What can happen inside a worker."""

    ACTIVE = "active"
    """A job starts."""
    COMPLETED = "completed"
    """A job is done, and the server knows."""
    FAILED = "failed"
    """An attempt failed, and the server knows; ``will_retry`` says whether the job is tried again."""
    LOST = "lost"
    """A job ended, or was stopped, after its lease had passed to another worker."""
    INTERRUPTED = "interrupted"
    """A job was put aside by its handler, and goes on later."""
    DRAINED = "drained"
    """Nothing is ready, and nothing runs here any more. Told once after the last job."""
    BUDGET_EXCEEDED = "budget-exceeded"
    """A job met, or used up, its flow's budget."""
    ERROR = "error"
    """The server could not be reached, or refused; the worker goes on trying."""


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """Something that happened inside a worker.

    Attributes:
        type: What.
        job: The job as it started, the same object in all events of a run; None when no job is concerned.
        reason: Why, of what failed.
        will_retry: Of a failed attempt: whether another follows.
    """

    type: WorkerEventType
    job: JobRecord | None = None
    reason: str | None = None
    will_retry: bool = False


Listener: TypeAlias = Callable[[WorkerEvent], object]


class Announcer:
    """Calls listeners, on the worker's loop. Costs nothing while there are none."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    def tell(
        self,
        type_: WorkerEventType,
        job: JobRecord | None = None,
        reason: str | None = None,
        *,
        will_retry: bool = False,
    ) -> None:
        """Call every listener. One that fails is logged and affects no other."""
        if not self.listeners:
            return
        event = WorkerEvent(type_, job, reason, will_retry)
        for listener in list(self.listeners):
            try:
                listener(event)
            except Exception:
                log.exception("A listener of this worker failed at %s", event)
