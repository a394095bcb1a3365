"""Usage that a queue's jobs reported, and the budgets of its flows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client.checks import check_items, check_text
from orchestration_queue.errors import InvalidOptionError, JobNotFoundError
from orchestration_queue.options import Budget, milliseconds
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.operations import budgets, usage
from orchestration_queue.protocol.operations.budgets import BudgetState
from orchestration_queue.protocol.operations.usage import UsageSummary, UsageTotals
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.server.clock import epoch_ms, now_ms

__all__ = ["AsyncUsageLedger"]

_HOUR_MS = milliseconds(timedelta(hours=1))


class AsyncUsageLedger(AsyncQueueClient):
    """Usage that jobs reported, and the budgets of flows whose root job is in this queue.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    async def summary(
        self, queues: Sequence[str] | None = None, start: datetime | None = None, end: datetime | None = None
    ) -> UsageSummary:
        """Sum the reported usage by minute; minutes are kept for 30 days.

        Args:
            queues: Their names; default: all that ever reported with this prefix.
            start: First minute; default: an hour before the end, and at most 30 days before it.
            end: Last minute, included; default: now.

        Raises:
            UsageError: A time has no time zone, the end precedes the start, or more than 100,000 minutes would be read,
                all queues together.
            InvalidNameError: One of the names is invalid.
        """
        names = None if queues is None else check_items(queues, str, "queues")
        end_ms = now_ms() if end is None else epoch_ms(end)
        start_ms = end_ms - _HOUR_MS if start is None else epoch_ms(start)
        return await self._connection.follow(usage.summary(self.keys.prefix, names, start_ms, end_ms))

    async def of_flow(self, flow_id: str) -> UsageTotals:
        """Sum the usage that a flow's jobs reported, at all levels, as far as they are kept.

        Args:
            flow_id: The id of its root job: the one that waits for all others.
        """
        return await self._connection.follow(usage.of_flow(ParentRef(self.keys, check_text(flow_id, "flow_id"))))

    async def budget(self, flow_id: str) -> BudgetState | None:
        """Return a flow's budget and how much of it is used; None if it has none."""
        return await self._connection.look(budgets.budget(self.keys, check_text(flow_id, "flow_id")))

    async def set_budget(self, flow_id: str, budget: Budget) -> BudgetState:
        """Set or replace a flow's budget, for all of its jobs that have not started.

        Usage under an earlier budget stays counted. After the budget is raised, jobs start again; those that failed
        meanwhile can be retried.

        Args:
            flow_id: The id of its root job: the one that waits for all others.
            budget: What the flow may use.

        Raises:
            InvalidOptionError: It is not a :class:`Budget`.
            JobNotFoundError: The root job does not exist.
        """
        if not isinstance(budget, Budget):
            raise InvalidOptionError(f"`budget` must be a Budget, got {budget!r}; pass Budget(max_tokens=...).")
        root = ParentRef(self.keys, flow_id)
        jobs = await self._connection.follow(usage.existing_jobs(root))
        if root not in jobs:
            raise JobNotFoundError(self.name, flow_id)
        so_far = await self.budget(flow_id)
        await self._connection.pipeline(budgets.budget_calls(self.keys, flow_id, budget, so_far), atomic=True)
        all_good(await self._connection.pipeline(budgets.apply_budget(self.keys, flow_id, jobs), repeatable=True))
        return await self.budget(flow_id) or BudgetState(budget)
