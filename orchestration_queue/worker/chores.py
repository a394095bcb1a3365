"""The housekeeping that every worker shares: promote due jobs, fire schedules, take over stalled jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.options import WorkerOptions, milliseconds
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import working
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker.leader import Leader

__all__ = ["Chores"]

log = logging.getLogger("orchestration_queue.worker")

_HEAL_EVERY = 10
_REGISTER_AT_LEAST_S = 1.0


class Chores:
    """Three loops beside a worker's main one. Every worker runs them; the server keeps them from doing harm twice.

    Args:
        keys: The queue's keys.
        consumer: This worker's name.
        connection: Connection for calls.
        options: The worker's options.
        leader: Fires the queue's repeatable jobs; None leaves that to other workers.
        on_ready: Called when a chore made jobs ready.
        on_tick: Awaited at every promotion tick, before anything else.
        on_register: Awaited to renew the worker's registration.
    """

    def __init__(
        self,
        keys: QueueKeys,
        consumer: str,
        connection: AsyncConnection,
        options: WorkerOptions,
        *,
        leader: Leader | None,
        on_ready: Callable[[], None],
        on_tick: Callable[[], Awaitable[None]],
        on_register: Callable[[], Awaitable[None]],
    ) -> None:
        self._keys = keys
        self._consumer = consumer
        self._connection = connection
        self._options = options
        self._on_ready = on_ready
        self._on_tick = on_tick
        self._on_register = on_register
        self._ticks = 0
        self._leader = leader

    async def run(self) -> None:
        """Do the chores until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._promote_forever())
            group.create_task(self._repeat(self._options.stalled_interval, self._reclaim))
            refresh_s = max(_REGISTER_AT_LEAST_S, self._options.stalled_interval.total_seconds() / 2)
            group.create_task(self._repeat(timedelta(seconds=refresh_s), self._on_register))

    async def _repeat(self, interval: timedelta, chore: Callable[[], Awaitable[None]]) -> None:
        while True:
            with _reported(chore.__name__.strip("_")):
                await chore()
            await asyncio.sleep(interval.total_seconds())

    async def _promote_forever(self) -> None:
        interval_ms = milliseconds(self._options.promotion_interval)
        while True:
            due_ms = -1
            with _reported("promotion"):
                due_ms = await self._promote()
            wait_ms = interval_ms if due_ms < 0 else min(interval_ms, max(1, due_ms - now_ms()))
            await asyncio.sleep(wait_ms / 1000)

    async def _promote(self) -> int:
        """One promotion tick; returns when the next delayed job is due, -1 for nothing."""
        await self._on_tick()
        operations = [working.promote(self._keys, now_ms()), working.promote_rate_limited(self._keys, now_ms())]
        if self._ticks % _HEAL_EVERY == _HEAL_EVERY - 1:
            operations.append(working.heal_list_active(self._keys))
        self._ticks += 1
        replies = await self._connection.pipeline([operation.call for operation in operations])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        fired_due_ms = await self._leader.tick() if self._leader else -1
        if any(replies[:2]):
            self._on_ready()
        due_ms = await self._connection.run(working.next_due(self._keys))
        return min((due for due in (due_ms, fired_due_ms) if due >= 0), default=-1)

    async def _reclaim(self) -> None:
        options, now = self._options, now_ms()
        calls = working.reclaim(
            self._keys,
            self._consumer,
            milliseconds(options.stalled_interval),
            options.max_stalled,
            milliseconds(options.lock_duration),
            now,
        )
        replies = await self._connection.pipeline([*calls, working.sweep_suspended(self._keys, now)])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        if replies[1]:
            self._on_ready()


@contextmanager
def _reported(chore: str) -> Iterator[None]:
    """Log a chore's failure and go on: the next round tries again."""
    try:
        yield
    except OrchestrationQueueError as error:
        log.warning("The %s chore failed and will be tried again: %s", chore, error)
