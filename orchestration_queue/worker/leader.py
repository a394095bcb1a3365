"""Firing the queue's repeatable jobs: whichever worker holds the lock does it, and a second one can do no harm.

A fire is written together with the entry that says it happened, and only while the lock is ours. Its job id is made
of the schedule's name and the time it was due, so that even two leaders at once add the job once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from orchestration_queue.options import milliseconds
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import scheduling
from orchestration_queue.protocol.placement import new_job
from orchestration_queue.schedules import SchedulerEntry, TickPlan, evaluate
from orchestration_queue.server import AsyncConnection

__all__ = ["Leader"]

log = logging.getLogger("orchestration_queue.worker")

_SHORTEST_LOCK_MS, _LONGEST_LOCK_MS = 1000, 5000


class Leader:
    """One worker's part in firing repeatable jobs.

    Args:
        keys: The queue's keys.
        connection: Connection for calls.
        token: This worker's claim on the lock.
        interval: The usual time between two ticks.
        now_ms: The time, in epoch milliseconds.
    """

    def __init__(
        self, keys: QueueKeys, connection: AsyncConnection, token: str, interval: timedelta, now_ms: Callable[[], int]
    ) -> None:
        self._keys = keys
        self._connection = connection
        self._token = token
        self._now_ms = now_ms
        self._lock_ms = min(_LONGEST_LOCK_MS, max(_SHORTEST_LOCK_MS, 2 * milliseconds(interval)))

    async def tick(self) -> int:
        """Fire what is due.

        Returns:
            When the next repeatable job is due, in epoch ms; -1 when none is.
        """
        entries = await self._connection.run(scheduling.entries(self._keys), repeatable=True)
        plan = evaluate(entries, self._now_ms())
        if not plan.is_empty:
            async with self._lock() as locked:
                if locked:
                    plan = await self._fire()
        return -1 if plan.next_due_ms is None else plan.next_due_ms

    async def _fire(self) -> TickPlan:
        """Evaluate the entries again, now that nobody else can change them, and write what follows."""
        at_ms = self._now_ms()
        plan = evaluate(await self._connection.run(scheduling.entries(self._keys)), at_ms)
        jobs = [
            new_job(
                fire.job_name,
                fire.data_text,
                fire.options,
                at_ms,
                options_text=fire.options_text,
                scheduler_name=fire.scheduler_name,
            )
            for fire in plan.fires
        ]
        write = scheduling.fire(self._keys, self._token, jobs, plan.updates, plan.deletions)
        if plan.is_empty or not await self._connection.run(write):
            return plan
        for fire in plan.fires:
            log.info("Schedule %s of queue %s fired job %s", fire.name, self._keys.queue, fire.options.job_id)
        return plan

    async def finished(self, name: str) -> None:
        """A job of a repeat-after-complete schedule has ended: its next one may follow."""
        async with self._lock() as locked:
            stored = await self._connection.run(scheduling.entry(self._keys, name)) if locked else None
            if stored is None:
                return
            entry = SchedulerEntry.parse(stored)
            if entry is None or not entry.waits_for_completion:
                return
            following = entry.completed(self._now_ms())
            call = scheduling.drop(self._keys, name).call
            if following is not None:
                call = scheduling.put(self._keys, name, following.dump())
            await self._connection.execute(call)

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[bool]:
        """Hold the schedulers' lock if it is free; says whether it was."""
        locked = await self._connection.run(scheduling.try_lock(self._keys, self._token, self._lock_ms))
        try:
            yield locked
        finally:
            if locked:
                await self._connection.run(scheduling.unlock(self._keys, self._token))
