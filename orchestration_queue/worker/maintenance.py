"""A worker's periodic loops: promote due jobs, evaluate schedules, reconcile flows, recover stalled jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError, ServerError
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.options import WorkerOptions, as_timedelta, milliseconds, seconds
from orchestration_queue.protocol.operations.worker_signals import Command, Tick, read_command
from orchestration_queue.server.clock import Pauses, Sleeper
from orchestration_queue.worker.heartbeat import Heartbeat
from orchestration_queue.worker.queue_io import QueueIO
from orchestration_queue.worker.scheduler_leader import SchedulerLeader

__all__ = ["Maintenance"]

log = get_logger("orchestration_queue.worker")

_HEAL_EVERY = 10
_REGISTER_AT_LEAST_S = 1.0
_NEVER_MS = 1 << 62


class Maintenance:
    """Four loops beside a worker's main one. Every worker runs them; the server makes concurrent runs harmless.

    Args:
        io: Connections to the server.
        options: The worker's options.
        leader: Evaluates the queue's repeatable jobs; None leaves that to other workers.
        reconciler: Reconciles the queue's flows; None leaves that to other workers.
        heartbeat: Renews this worker's leases.
        on_ready: Called when a stalled job became ready.
        on_tick: Called with the result of each tick.
        on_register: Awaited to renew the worker's registration.
        on_cancel: Called with the id of a running job that was cancelled, and when, epoch ms.
        on_command: Runs with a client's command to some workers of the queue.
    """

    def __init__(
        self,
        io: QueueIO,
        options: WorkerOptions,
        *,
        leader: SchedulerLeader | None,
        reconciler: FlowReconciler | None,
        heartbeat: Heartbeat,
        on_ready: Callable[[], None],
        on_tick: Callable[[Tick], None],
        on_register: Callable[[], Awaitable[None]],
        on_cancel: Callable[[str, int], object],
        on_command: Callable[[Command], Coroutine[Any, Any, None]],
    ) -> None:
        self._io = io
        self._options = options
        self._leader = leader
        self._reconciler = reconciler
        self._heartbeat = heartbeat
        self._on_ready = on_ready
        self._on_tick = on_tick
        self._on_register = on_register
        self._on_cancel = on_cancel
        self._on_command = on_command
        self._ticks = 0
        self._next_ms = 0
        self._is_sooner = False
        self._due_signals: list[str] = []
        self._sleeper: Sleeper | None = None

    def due_at(self, at_ms: int) -> None:
        """Promote what is due at this time, in epoch ms, at that time instead of with the next regular tick."""
        if self._sleeper is not None and at_ms < self._next_ms:
            self._next_ms, self._is_sooner = at_ms, True
            self._sleeper.wake()

    def tick_now(self, signals: Sequence[str]) -> None:
        """Tick now, as signals to this worker ask for, then drop them."""
        self._due_signals += signals
        if self._sleeper is not None:
            self._sleeper.wake()

    async def run(self) -> None:
        """Run the loops until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick_forever())
            group.create_task(self._read_signals(group))
            group.create_task(self._io.follow_primary())
            group.create_task(self._repeat(as_timedelta(self._options.stalled_interval), self._reclaim))
            if self._reconciler is not None:
                group.create_task(self._repeat(as_timedelta(self._options.flow_interval), self._reconcile))
            refresh_s = max(_REGISTER_AT_LEAST_S, seconds(self._options.stalled_interval) / 2)
            group.create_task(self._repeat(timedelta(seconds=refresh_s), self._on_register))

    async def _repeat(self, interval: timedelta, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            with _log_failure(work.__name__.strip("_")):
                await work()
            await asyncio.sleep(interval.total_seconds())

    async def _tick_forever(self) -> None:
        interval_ms = milliseconds(self._options.promotion_interval)
        now_ms, pauses = self._io.clock.now_ms, Pauses(longest_s=interval_ms / 1000)
        with Sleeper() as self._sleeper:
            while True:
                self._next_ms = _NEVER_MS  # whatever is recorded from here on is earlier
                pause_ms = round(1000 * pauses.next_s())  # other workers may rely on it: a failed tick is repeated soon
                with _log_failure("tick"):
                    due_ms = await self._tick(interval_ms)
                    pause_ms = interval_ms if due_ms < 0 else min(interval_ms, due_ms - now_ms())
                    pauses.reset()
                # A due time that was noted during the tick is kept if it is earlier.
                self._next_ms = min(self._next_ms, now_ms() + pause_ms)
                self._is_sooner = True
                while self._is_sooner:
                    self._is_sooner = False
                    await self._sleeper.sleep(max(1, self._next_ms - now_ms()) / 1000)

    async def _read_signals(self, group: asyncio.TaskGroup) -> None:
        """Handle signals of the queue's clients immediately. Other languages' clients send none; ticks do it then."""
        pauses = Pauses()
        while True:
            try:
                signals = await self._io.read_signals()
                pauses.reset()
            except OrchestrationQueueError as error:
                log.debug("Signals of queue %s could not be read: %s", self._io.queue, error)
                await asyncio.sleep(pauses.next_s())
                continue
            for signal in signals:
                if signal.cancelled is not None:
                    self._on_cancel(signal.cancelled, signal.at_ms)
                elif signal.released is not None:
                    self._heartbeat.check(signal.released)
                elif signal.command is not None and (command := read_command(signal.command)) is not None:
                    # In a task: a pause waits until no job is on its way, and later signals must not.
                    group.create_task(self._on_command(command))
            if any(signal.is_due for signal in signals):
                self._on_ready()
                if self._sleeper is not None:
                    self._sleeper.wake()

    async def _tick(self, interval_ms: int) -> int:
        """Run one tick; return when this worker's next one is due before its usual time, -1 for never."""
        self._ticks += 1
        signals = list(self._due_signals)
        heal, fires = self._ticks % _HEAL_EVERY == 0, self._leader is not None
        tick, due_ms = await self._io.tick_and_watch(interval_ms, signals, heal=heal, fires=fires)
        # Signals that came during the tick ask for another one.
        del self._due_signals[: len(signals)]
        self._on_tick(tick)
        schedules_due_ms = await self._leader.tick(tick.schedules_due_ms) if self._leader else -1
        return min((due for due in (due_ms, schedules_due_ms) if due >= 0), default=-1)

    async def _reconcile(self) -> None:
        if self._reconciler is not None:
            await self._io.calls.follow(self._reconciler.round())

    async def _reclaim(self) -> None:
        # A process that was suspended for long would find its own jobs stalled.
        if self._io.outages.is_recent or self._heartbeat.is_behind:
            return
        try:
            has_found = await self._io.reclaim()
        except ServerError as error:
            if error.code != "NOGROUP":
                raise
            return  # the queue was removed, which the next exchange repairs and reports
        if has_found:
            self._on_ready()


@contextmanager
def _log_failure(what: str) -> Iterator[None]:
    """Log a loop's failure and continue: the next round tries again."""
    try:
        yield
    except OrchestrationQueueError as error:
        log.warning("The %s loop failed and will be retried: %s", what, error)
