"""Enforce a flow's budget: checked before each run, charged after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from orchestration_queue.errors import BudgetExceededError, OrchestrationQueueError
from orchestration_queue.protocol.call import Operation
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Postponement
from orchestration_queue.protocol.operations import budgets
from orchestration_queue.protocol.operations.conversation import all_good
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker.active_job import JobInterrupt
from orchestration_queue.worker.job import AsyncActiveJob
from orchestration_queue.worker.middleware import CallNext

__all__ = ["BudgetGuard"]

log = logging.getLogger("orchestration_queue.worker")

_PAUSE_MS = 24 * 60 * 60 * 1000
_ASK_AGAIN_S = 1.0


class BudgetGuard:
    """Runs jobs while their flow's budget lasts, and charges what they used. For jobs that have a budget.

    Args:
        keys: The queue's keys.
        connection: Connection for calls.
        now_ms: Returns the time, in epoch milliseconds.
        on_exceeded: Called with a job that found the budget exceeded, or exceeded it.
    """

    def __init__(
        self,
        keys: QueueKeys,
        connection: AsyncConnection,
        now_ms: Callable[[], int],
        on_exceeded: Callable[[JobRecord], object],
    ) -> None:
        self._keys = keys
        self._connection = connection
        self._now_ms = now_ms
        self._on_exceeded = on_exceeded

    async def __call__(self, job: AsyncActiveJob, call_next: CallNext) -> Any:
        """Run the job, unless the budget is exceeded.

        Raises:
            BudgetExceededError: It is exceeded, and the flow's jobs should fail.
            JobInterrupt: It is exceeded, and the flow's jobs should be postponed.
        """
        budget_key = job.record.fields["budgetKey"]
        if await self._ask(budgets.is_spent(budget_key), job):
            self._on_exceeded(job.record)
            if await self._ask(budgets.pauses_when_spent(budget_key), job):
                raise JobInterrupt(lambda lease: Postponement(lease, self._now_ms() + _PAUSE_MS))
            raise BudgetExceededError
        result = await call_next()
        await self._charge(job, budget_key)
        return result

    async def _ask(self, question: Operation[bool], job: AsyncActiveJob) -> bool:
        """Check the budget, and retry while the server is unreachable: an outage must not fail the job."""
        while True:
            try:
                return await self._connection.run(question, repeatable=True)
            except OrchestrationQueueError as error:
                log.warning("Job %s waits because its flow's budget could not be asked for: %s", job.id, error)
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _charge(self, job: AsyncActiveJob, budget_key: str) -> None:
        """Charge what the job used. If this fails, the job's result is more important and the charge is lost."""
        try:
            calls = budgets.terms(self._keys, job.id, budget_key)
            charge = budgets.charge(budget_key, all_good(await self._connection.pipeline(calls, repeatable=True)))
            if charge is not None and await self._connection.run(charge):
                self._on_exceeded(job.record)
        except OrchestrationQueueError as error:
            log.warning("What job %s used could not be charged to its flow's budget: %s", job.id, error)
