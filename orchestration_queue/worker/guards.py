"""Guards around a job's run: it starts only with slots of its pools, and while its flow's budget lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import BudgetExceededError, OrchestrationQueueError, UnrecoverableError
from orchestration_queue.protocol.call import Operation, all_good
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease, Postponement
from orchestration_queue.protocol.operations import budgets, pools
from orchestration_queue.protocol.operations.pools import Grant, Holding
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection, Connection
from orchestration_queue.worker.active_job import JobInterrupt
from orchestration_queue.worker.interfaces import CallNext
from orchestration_queue.worker.job import AsyncActiveJob

__all__ = ["BudgetGuard", "PoolGuard"]

log = get_logger("orchestration_queue.worker")

_RETRY_MS = 1000
"""Pause when the server is unreachable. The job waits instead of failing."""
_PAUSES_S = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Pauses before starting a woken job that its worker is still postponing."""
_BUDGET_PAUSE_MS = 24 * 60 * 60 * 1000
_RETRY_S = 1.0


class PoolGuard:
    """Runs a job while it holds the slots that it needs. For jobs that name pools.

    Args:
        keys: The queue's keys.
        connection: Connection for calls.
        now_ms: Returns the time, in epoch milliseconds.
        lease_ms: The usual lease.
    """

    def __init__(self, keys: QueueKeys, connection: AsyncConnection, now_ms: Callable[[], int], lease_ms: int) -> None:
        self._keys = keys
        self._connection = connection
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._held: dict[tuple[str, int], Holding] = {}
        """Slots of attempts that run here. The heartbeat's thread reads it."""
        self._waking: set[asyncio.Task[None]] = set()

    async def __call__(self, job: AsyncActiveJob, call_next: CallNext) -> Any:
        """Run the job once it holds its slots.

        Raises:
            UnrecoverableError: A pool is not defined.
            JobInterrupt: There are too few free slots, and the job waits for them.
        """
        lease = Lease(job.record, "")
        holding = Holding(
            self._keys, lease.job_id, lease.taken_ms, int(lease.lock_ms or self._lease_ms), job.record.pools
        )
        grant = await self._acquire(holding)
        if grant.unknown is not None:
            raise UnrecoverableError(
                f"Pool {grant.unknown!r} is not defined; define it with `oq pool set {grant.unknown} SLOTS` and retry "
                "the job."
            )
        if not grant.is_held:
            until_ms = self._now_ms() + grant.sleep_ms
            raise JobInterrupt(lambda lease: Postponement(lease, until_ms))
        held = (holding.job_id, holding.taken_ms)
        self._held[held] = holding
        try:
            return await call_next()
        finally:
            # First, or the heartbeat would renew slots that are being released.
            del self._held[held]
            await self._release(holding)

    async def _acquire(self, holding: Holding) -> Grant:
        try:
            grant = await self._connection.run(pools.acquire(holding, self._now_ms()), repeatable=True)
        except OrchestrationQueueError as error:
            log.warning("Job %s waits because slots of its pools could not be acquired: %s", holding.job_id, error)
            return Grant(is_held=False, sleep_ms=_RETRY_MS, unknown=None, woken=[])
        self._wake(grant.woken)
        return grant

    async def _release(self, holding: Holding) -> None:
        """Release slots. If this fails, they are released when their lease expires."""
        try:
            self._wake(await self._connection.run(pools.release(holding, self._now_ms()), repeatable=True))
        except OrchestrationQueueError as error:
            log.warning("Slots of job %s are released only when its lease expires: %s", holding.job_id, error)

    def _wake(self, tokens: Sequence[str]) -> None:
        """Start jobs for which there are slots now, in the background."""
        if tokens:
            task = asyncio.create_task(self._start(tokens))
            # asyncio itself refers to tasks only weakly.
            self._waking.add(task)
            task.add_done_callback(self._waking.discard)

    async def _start(self, tokens: Sequence[str]) -> None:
        try:
            for pause_s in (*_PAUSES_S, None):
                starting = pools.start_woken(self._keys, tokens, self._now_ms(), is_last=pause_s is None)
                tokens = await self._connection.follow(starting)
                if not tokens or pause_s is None:
                    return
                await asyncio.sleep(pause_s)
        except OrchestrationQueueError as error:
            log.warning("Jobs that wait for slots of pools were not woken, and start later: %s", error)

    def renew(self, connection: Connection, leases: Sequence[Lease]) -> None:
        """Renew the leases on the slots of running jobs, in the heartbeat's thread and through its connection."""
        found = [self._held.get((lease.job_id, lease.taken_ms)) for lease in leases] if self._held else ()
        if not (holdings := [holding for holding in found if holding is not None]):
            return
        try:
            all_good(connection.pipeline(pools.renew(self._keys, holdings, self._now_ms()), repeatable=True))
            for holding in holdings:
                if (holding.job_id, holding.taken_ms) not in self._held:
                    # It ended meanwhile, and the renewal may have arrived after its release.
                    connection.run(pools.release(holding, self._now_ms()), repeatable=True)
        except OrchestrationQueueError as error:
            log.warning("Could not renew slots of %d jobs, trying again soon: %s", len(holdings), error)

    async def aclose(self) -> None:
        """Wait until the jobs for which slots were released have been started."""
        if self._waking:
            await asyncio.wait(self._waking)


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
                raise JobInterrupt(lambda lease: Postponement(lease, self._now_ms() + _BUDGET_PAUSE_MS))
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
                log.warning("Job %s waits because its flow's budget could not be read: %s", job.id, error)
            await asyncio.sleep(_RETRY_S)

    async def _charge(self, job: AsyncActiveJob, budget_key: str) -> None:
        """Charge what the job used. If this fails, the job's result is more important and the charge is lost."""
        try:
            calls = budgets.usage_calls(self._keys, job.id, budget_key)
            charge = budgets.charge(budget_key, all_good(await self._connection.pipeline(calls, repeatable=True)))
            if charge is not None and await self._connection.run(charge):
                self._on_exceeded(job.record)
        except OrchestrationQueueError as error:
            log.warning("The usage of job %s was not charged to its flow's budget: %s", job.id, error)
