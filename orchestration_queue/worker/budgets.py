"""Holding a flow's jobs to its budget: asked before each run, charged after it."""

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
from orchestration_queue.worker.interrupts import JobInterrupt
from orchestration_queue.worker.job import AsyncActiveJob
from orchestration_queue.worker.middleware import CallNext

__all__ = ["BudgetGuard"]

log = logging.getLogger("orchestration_queue.worker")

_PAUSE_MS = 24 * 60 * 60 * 1000
_ASK_AGAIN_S = 1.0


class BudgetGuard:
    """Lets a job run while its flow's budget lasts, and charges what it used. For jobs that have a budget.

    Args:
        keys: The queue's keys.
        connection: Connection for calls.
        now_ms: The time, in epoch milliseconds.
        on_exceeded: Called with a job that met, or used up, the budget.
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
        """Run the job, unless the budget is spent.

        Raises:
            BudgetExceededError: It is spent, and the flow's jobs fail then.
            JobInterrupt: It is spent, and the flow's jobs are postponed then.
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
        """Ask until there is an answer. The job waits rather than fails: it has done nothing wrong."""
        while True:
            try:
                return await self._connection.run(question, repeatable=True)
            except OrchestrationQueueError as error:
                log.warning("Job %s waits because its flow's budget could not be asked for: %s", job.id, error)
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _charge(self, job: AsyncActiveJob, budget_key: str) -> None:
        """Count what the job used. A charge that fails is not worth the job's work, and is left out."""
        try:
            calls = budgets.terms(self._keys, job.id, budget_key)
            charge = budgets.charge(budget_key, all_good(await self._connection.pipeline(calls, repeatable=True)))
            if charge is not None and await self._connection.run(charge):
                self._on_exceeded(job.record)
        except OrchestrationQueueError as error:
            log.warning("What job %s used could not be charged to its flow's budget: %s", job.id, error)
