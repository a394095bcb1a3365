"""Rate limits, token limits, pauses and budgets that delay a claimed job.

As in every client of this wire, limits are counted when a job is about to start. A job that waits for one has already
been taken: it keeps its slot and its lease, and no other worker runs it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.options import RateLimit, TokenLimit, WorkerOptions, milliseconds
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Postponement
from orchestration_queue.protocol.operations import queue_settings
from orchestration_queue.protocol.operations.worker_signals import Tick
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker.active_job import JobInterrupt
from orchestration_queue.worker.guards import BudgetGuard, PoolGuard
from orchestration_queue.worker.interfaces import CallNext, Middleware
from orchestration_queue.worker.job import AsyncActiveJob

__all__ = ["RateLimiter", "TokenLimiter", "WorkerLimits"]

log = get_logger("orchestration_queue.worker")

_RETRY_MS = 1000
"""Pause when the server is unreachable. The job waits instead of failing."""


class WorkerLimits:
    """The limits of one worker. :meth:`around` returns those that apply to a job, usually none.

    Args:
        options: The worker's options.
        keys: The queue's keys.
        connection: Connection for calls.
        now_ms: Returns the time, in epoch milliseconds.
        on_exceeded: Called with a job that found its flow's budget exceeded, or exceeded it.
    """

    def __init__(
        self,
        options: WorkerOptions,
        keys: QueueKeys,
        connection: AsyncConnection,
        now_ms: Callable[[], int],
        on_exceeded: Callable[[JobRecord], object],
    ) -> None:
        self._now_ms = now_ms
        self._rate = RateLimiter(options.rate_limit, keys, connection, now_ms)
        self._tokens = TokenLimiter(options.token_limit, keys, connection, now_ms) if options.token_limit else None
        self._budgets = BudgetGuard(keys, connection, now_ms, on_exceeded)
        self.pools = PoolGuard(keys, connection, now_ms, milliseconds(options.lease))
        self._paused_until = 0.0
        self._is_leaving = False
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    def around(self, record: JobRecord) -> Sequence[Middleware]:
        """Return what to wrap around the run of this job, outside of its timeout, outermost first."""
        is_held = self._tokens or self._rate.is_in_force or self._paused_until
        held: Sequence[Middleware] = (self._hold,) if is_held else ()
        if record.pools:  # innermost: a job that waits for another limit holds no slots
            held = (*held, self.pools)
        return (self._budgets, *held) if record.fields.get("budgetKey") else held

    def pause_for(self, delay_ms: float) -> None:
        """Start no job for some time. A longer pause that is already set is kept."""
        self._paused_until = max(self._paused_until, asyncio.get_running_loop().time() + delay_ms / 1000)

    def leave(self) -> None:
        """Return waiting jobs to the queue: shutdown must not wait for a window only to start them."""
        self._is_leaving = True
        self._changed.set()

    def refresh(self, tick: Tick) -> None:
        """Store the queue's current rate limit, and let the waiting job check again."""
        self._rate.set_on_queue(queue_settings.stored_rate_limit(tick.rate_max, tick.rate_window_ms))
        self._changed.set()

    async def _hold(self, job: AsyncActiveJob, call_next: CallNext) -> Any:
        """Start the job when all limits allow it. Jobs wait in line, and only the first of them polls."""
        async with self._turn:
            # Before each check, so that a change during it ends the wait that follows.
            self._changed.clear()
            while not self._is_leaving and (wait_ms := await self._wait_ms()):
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._changed.wait()
                self._changed.clear()
        if self._is_leaving:
            raise JobInterrupt(lambda lease: Postponement(lease, self._now_ms()))
        result = await call_next()
        if self._tokens:
            await self._tokens.count(job)
        return result

    async def _wait_ms(self) -> float:
        """Return how long the next job must wait, by the first limit that delays it; the rate is last: it counts."""
        if self._paused_until:
            if (left_s := self._paused_until - asyncio.get_running_loop().time()) > 0:
                return left_s * 1000
            self._paused_until = 0.0
        try:
            return (self._tokens and await self._tokens.wait_ms()) or await self._rate.wait_ms()
        except OrchestrationQueueError as error:
            log.warning("A job waits because its limit could not be checked: %s", error)
            return _RETRY_MS


class RateLimiter:
    """Maximum job starts per window across all workers. A limit set on the queue takes precedence.

    Args:
        limit: This worker's limit.
        keys: The queue's keys.
        connection: Connection for calls.
        now_ms: Returns the time, in epoch milliseconds.
    """

    def __init__(
        self, limit: RateLimit | None, keys: QueueKeys, connection: AsyncConnection, now_ms: Callable[[], int]
    ) -> None:
        self._own = limit
        self._queues: RateLimit | None = None
        self._has_read = False
        self._keys = keys
        self._connection = connection
        self._now_ms = now_ms

    @property
    def is_in_force(self) -> bool:
        """Whether starts are limited, or may be until the queue's limit has been read."""
        return not self._has_read or self._queues is not None or self._own is not None

    def set_on_queue(self, limit: RateLimit | None) -> None:
        """Store the queue's limit."""
        self._queues = limit
        self._has_read = True

    async def wait_ms(self) -> int:
        """Count a start and return 0, or return how long to wait before asking again."""
        if not self._has_read:
            self.set_on_queue(await self._connection.run(queue_settings.global_rate_limit(self._keys), repeatable=True))
        limit = self._queues or self._own
        return (
            await self._connection.run(queue_settings.ask_to_start(self._keys, limit, self._now_ms())) if limit else 0
        )


class TokenLimiter:
    """Maximum tokens per window, as reported by jobs. A job's tokens are known when it ends, so the last can exceed it.

    Windows are aligned to the epoch, so all workers of a queue use the same ones.

    Args:
        limit: How many, and whose tokens count.
        keys: The queue's keys.
        connection: Connection for calls.
        now_ms: Returns the time, in epoch milliseconds.
    """

    def __init__(
        self, limit: TokenLimit, keys: QueueKeys, connection: AsyncConnection, now_ms: Callable[[], int]
    ) -> None:
        self._limit = limit
        self._duration_ms = milliseconds(limit.duration)
        self._keys = keys
        self._connection = connection
        self._now_ms = now_ms
        self._window = 0
        self._spent = 0

    async def wait_ms(self) -> int:
        """Return how long until tokens are available: 0, or the rest of this window."""
        now = self._now_ms()
        window = now // self._duration_ms
        if await self._is_spent(window):
            return (window + 1) * self._duration_ms - now
        return 0

    async def _is_spent(self, window: int) -> bool:
        limit = self._limit
        if limit.scope != "queue" and window == self._window and self._spent >= limit.max_tokens:
            return True
        if limit.scope == "worker":
            return False
        spent = await self._connection.run(queue_settings.tokens_spent(self._keys, window), repeatable=True)
        return spent >= limit.max_tokens

    async def count(self, job: AsyncActiveJob) -> None:
        """Count the tokens that a finished job reported. If this fails, the count is lost."""
        try:
            reported = queue_settings.reported_tokens(self._keys, job.id)
            if tokens := await self._connection.run(reported, repeatable=True):
                await self._spend(tokens)
        except OrchestrationQueueError as error:
            log.warning("The tokens of job %s of queue %s could not be counted: %s", job.id, job.queue, error)

    async def _spend(self, tokens: int) -> None:
        window = self._now_ms() // self._duration_ms
        if window != self._window:
            self._window, self._spent = window, 0
        self._spent += tokens
        if self._limit.scope != "worker":
            calls = queue_settings.spend_tokens(self._keys, window, tokens, self._duration_ms)
            # In one transaction, so that no window's counter is left without its expiry.
            all_good(await self._connection.pipeline(calls, atomic=True))
