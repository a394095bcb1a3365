"""Events inside one worker, and the counts that it adds to its queue's statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.lease import Completion, Failure, Settlement
from orchestration_queue.protocol.outcome import Verdict
from orchestration_queue.protocol.record import JobRecord, whole_number
from orchestration_queue.protocol.statistics import Tally
from orchestration_queue.worker.queue_io import QueueIO

__all__ = ["Announcer", "Listener", "Tallying", "WorkerEvent", "WorkerEventType"]

log = get_logger("orchestration_queue.worker")

# At most one call a second, whatever the number of jobs.
_EVERY_S = 1.0
_COUNTED = ((Completion, Verdict.COMPLETED), (Failure, Verdict.FAILED), (Failure, Verdict.RETRYING))
"""Not a set: members of enumerations are hashed by Python code."""


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

    def emit(
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


class Tallying:
    """Counts attempts by outcome, and sends the counts. Counts that can't be sent are lost.

    Args:
        io: Connections to the server.
        begin: Runs a coroutine beside the worker's main loop.
    """

    def __init__(self, io: QueueIO, begin: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._io = io
        self._begin = begin
        self._tally = Tally()
        self._timer: asyncio.TimerHandle | None = None

    def count(self, settlement: Settlement, verdict: Verdict) -> None:
        """Count an attempt whose outcome the server has."""
        job, taken_ms = settlement.lease.record, settlement.lease.taken_ms
        if (type(settlement), verdict) not in _COUNTED:
            return
        task = self._tally.task(job.name)
        if verdict is Verdict.COMPLETED:
            task.run.add(self._io.clock.now_ms() - taken_ms)
        elif verdict is Verdict.FAILED:
            task.fail(settlement.kind if isinstance(settlement, Failure) else "")
        else:
            task.retried += 1
        if job.attempts_made == 0 and job.stalled_count == 0:
            task.wait.add(taken_ms - _due_ms(job))
        self._send_soon()

    def count_step(self, task: str) -> None:
        """Count a durable step whose outcome the server has stored."""
        self._tally.task(task).steps += 1
        self._send_soon()

    def _send_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY_S, lambda: self._begin(self.send()))

    async def send(self) -> None:
        """Send what was counted so far, if anything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._tally:
            return
        try:
            await self._io.count(self._tally)
        except OrchestrationQueueError as error:
            log.debug("Statistics of queue %s were not counted: %s", self._io.queue, error)


def _due_ms(job: JobRecord) -> int:
    """Return when a job was first ready to start: when it was added, plus its delay."""
    return (whole_number(job.fields.get("timestamp")) or 0) + (whole_number(job.fields.get("delay")) or 0)
