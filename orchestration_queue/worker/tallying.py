"""A worker's contribution to its queue's statistics: counted here, and sent at most once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.lease import Completion, Failure, Settlement
from orchestration_queue.protocol.outcome import Verdict
from orchestration_queue.protocol.record import JobRecord, whole_number
from orchestration_queue.protocol.statistics import Tally
from orchestration_queue.worker.queue_io import QueueIO

__all__ = ["Tallying"]

log = logging.getLogger("orchestration_queue.worker")

_EVERY_S = 1.0
_COUNTED = {(Completion, Verdict.COMPLETED), (Failure, Verdict.FAILED), (Failure, Verdict.RETRYING)}


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
            task.failed += 1
        else:
            task.retried += 1
        if job.attempts_made == 0 and job.stalled_count == 0:
            task.wait.add(taken_ms - _due_ms(job))
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
