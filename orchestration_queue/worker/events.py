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
    """Types of events in a worker."""

    ACTIVE = "active"
    """A job is about to run."""
    COMPLETED = "completed"
    """A job completed, and the server has its outcome."""
    FAILED = "failed"
    """An attempt failed, and the server has its outcome; ``will_retry`` says whether the job is retried."""
    LOST = "lost"
    """A job ended, or was stopped, after its lease was lost to another worker."""
    INTERRUPTED = "interrupted"
    """A handler postponed its job, which runs again later."""
    DRAINED = "drained"
    """No job is ready, and none runs here. Emitted once after the last job."""
    BUDGET_EXCEEDED = "budget-exceeded"
    """A job found its flow's budget exceeded, or exceeded it."""
    ERROR = "error"
    """The server was unreachable, or refused a call; the worker keeps trying."""


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """An event in a worker.

    Attributes:
        type: What happened.
        job: The job when it started, the same object in all events of a run; None if no job is involved.
        reason: Why something failed.
        will_retry: Whether another attempt follows a failed one.
    """

    type: WorkerEventType
    job: JobRecord | None = None
    reason: str | None = None
    will_retry: bool = False


Listener: TypeAlias = Callable[[WorkerEvent], object]


class Announcer:
    """Calls listeners, on the worker's event loop."""

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
        """Call every listener. An exception of one is logged and doesn't affect the others."""
        if not self.listeners:
            return
        event = WorkerEvent(type_, job, reason, will_retry)
        for listener in list(self.listeners):
            try:
                listener(event)
            except Exception:
                log.exception("A listener of this worker failed at %s", event)
