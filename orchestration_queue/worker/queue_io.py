"""The worker's connections to the server, on which it carries out the state machine's actions."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import ServerError
from orchestration_queue.options import WorkerOptions, milliseconds, seconds
from orchestration_queue.protocol import statistics
from orchestration_queue.protocol.call import Call, Operation, Reply, all_good
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.lease import Delivery, Lease
from orchestration_queue.protocol.operations import (
    dead_letters,
    exchanges,
    queue_settings,
    queue_state,
    worker_registry,
    worker_signals,
)
from orchestration_queue.protocol.operations.event_log import FIRST_EVENT
from orchestration_queue.protocol.operations.exchanges import ExchangeResult, Renewal, Wakeup
from orchestration_queue.protocol.operations.notifications import PendingNotifications, notify_all
from orchestration_queue.protocol.operations.worker_signals import Command, Tick, WorkerSignal
from orchestration_queue.protocol.statistics import Tally
from orchestration_queue.server import AsyncConnection, Connection
from orchestration_queue.server.clock import ServerClock
from orchestration_queue.worker.connections import SignalReader, Waker
from orchestration_queue.worker.machine import Exchange
from orchestration_queue.worker.outages import Outages
from orchestration_queue.worker.queue_defaults import QueueDefaults

__all__ = ["QueueIO"]

log = get_logger("orchestration_queue.worker")

_WATCH_S = 0.1
"""How long a blocking read may continue after its primary was announced to be replaced."""
_MOST_SWEEPS = 100
"""Maximum consecutive autoclaim calls, if one does not reach all stalled jobs."""


class QueueIO:
    """One worker's two connections: one for calls, one for blocking reads.

    Args:
        keys: The queue's keys.
        consumer: This worker's name in the group.
        calls: Connection for calls.
        waits: Connection for blocking reads.
        options: The worker's options.
        signals: Reads the signals to the queue's workers; default: a reader for this worker alone.

    Attributes:
        clock: The server's clock, once :meth:`set_clock` was called; adjusted with each tick.
        defaults: The queue's settings for its workers; read with each tick.
        outages: Detects outages.
        waker: Ends a blocking read early.
    """

    def __init__(
        self,
        keys: QueueKeys,
        consumer: str,
        calls: AsyncConnection,
        waits: AsyncConnection,
        options: WorkerOptions,
        signals: SignalReader | None = None,
    ) -> None:
        self._keys = keys
        self._consumer = consumer
        self._calls = calls
        self._waits = waits
        self._options = options
        self._in_cluster = calls.is_cluster
        self._host = socket.gethostname()
        self._tick_ms = milliseconds(options.promotion_interval)
        self.clock = ServerClock()
        self.defaults = QueueDefaults(options)
        self.outages = Outages(seconds(options.lease))
        self._named_queue: str | None = None
        self._group, self._start_from = GROUP, "0"
        self.waker = Waker(calls, waits, keys.stream)
        self._signals = signals or SignalReader(calls)
        self._last_signal = ""
        self._hears_signals = False
        self._last_heard = FIRST_EVENT

    @property
    def calls(self) -> AsyncConnection:
        """The connection for calls, for use on the worker's event loop."""
        return self._calls

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._keys.queue

    async def set_clock(self) -> Tick:
        """Read the server's time, before anything is decided by this machine's, and the queue's settings."""
        return (await self._tick(0, heal=False))[0]  # before anything was due

    async def join(self) -> None:
        """Create the workers' consumer group if needed, and store where this worker's dead letters go."""
        try:
            await self._calls.execute(
                worker_registry.create_group(self._keys, self._group, self._start_from), repeatable=True
            )
        except ServerError as error:
            if error.code != "BUSYGROUP" and not (error.code == "OOM" and await self._has_group()):
                raise
        self._hears_signals = False
        # Also after an outage: the keys may have been removed meanwhile.
        self._named_queue = ""
        await self._name_dead_letters()

    async def _join_signals(self) -> list[str]:
        """Join the group of signals to single workers, if possible; return those that a lost reply delivered.

        If it can't, because the server is full or the key has another type, jobs in lists are found when a blocking
        read ends.
        """
        if self._hears_signals or self._group != GROUP:
            return []
        held = exchanges.held_signals(self._keys, self._consumer)
        create = worker_signals.create_signal_group(self._keys)  # refused if it exists, and always by a full server
        join = worker_signals.join_signal_group(self._keys, self._consumer)
        *_, reply = await self._calls.pipeline([create, join, held.call])
        self._hears_signals = not isinstance(reply, ServerError)
        self._last_heard = FIRST_EVENT
        return held.read(reply) if self._hears_signals else []

    async def _name_dead_letters(self) -> None:
        """Store where this worker's dead letters go, if that has changed."""
        to = self.defaults.dead_letter_queue
        if to and to != self._named_queue:
            try:
                await self._calls.execute(worker_registry.name_dead_letter_queue(self._keys, to), repeatable=True)
            except ServerError as error:
                if error.code != "OOM":  # a full server can still be drained: dead letters name their queue
                    raise
        self._named_queue = to

    async def _has_group(self) -> bool:
        """Whether the workers' group exists; a full server refuses to create it even if it does."""
        try:
            await self._calls.execute(worker_registry.pending(self._keys, self._group))
        except ServerError:
            return False
        return True

    async def exchange(self, step: Exchange) -> ExchangeResult:
        """Send one exchange: settle outcomes, return and start deliveries, fetch more."""
        now_ms = self.clock.now_ms()
        operation = exchanges.exchange(
            self._keys,
            self._consumer,
            now_ms,
            settle=step.settle,
            hand_back=step.hand_back,
            start=step.start,
            want=step.want,
            honor_pause=self._options.honor_pause,
            cluster=self._in_cluster,
            dead_letter=self.defaults.dead_letter_queue,
            skip_events=not self._options.emit_events,
            skip_metrics=not self._options.record_metrics,
        )
        notes = watch = None
        if step.settle:
            # Before the outcomes: the record may be gone once the failure is settled.
            notes = exchanges.attempt_notes(self._keys, self._consumer, self._host, now_ms, step.settle)
            # A second worker learns when the retries are due, in case this one dies or its handler blocks the loop.
            until_ms = now_ms + self._tick_ms
            watch = worker_signals.watch_retries(self._keys, self._consumer, now_ms, until_ms, step.settle)
        with self.outages.watch():  # the jobs that it starts are not renewed until its reply arrives
            if notes is None and watch is None:
                result = await self._calls.run(operation)
            else:
                result = await self._exchange_beside(operation, notes, watch)
        # The server stored the letters with the failures, so that losing this call only delays them (decision 0004).
        if result.letters:
            await self._post(result.letters)
        if result.pending:
            await self._notify(result.pending)
        return result

    async def _exchange_beside(
        self, operation: Operation[ExchangeResult], notes: Call | None, watch: Operation[int] | None
    ) -> ExchangeResult:
        """Send an exchange in one request with notes about its outcomes, and a watch for the jobs that it postpones."""
        before = [notes] if notes is not None else []
        after = [watch.call] if watch is not None else []
        replies = await self._calls.pipeline([*before, operation.call, *after])
        if before and isinstance(noted := replies.pop(0), ServerError):
            log.warning("Failures of queue %s were stored without their histories: %s", self.queue, noted)
        reply, *watched = replies
        (reply,) = all_good([reply])
        result = operation.read(reply)
        if watch is None or isinstance(watched[0], ServerError):  # without a watch, this worker's own timer is left
            return result
        return replace(result, due_ms=watch.read(watched[0]))

    async def _post(self, letters: Sequence[bytes]) -> None:
        """Add dead letters that the server keeps for us. Those that fail stay there."""
        try:
            problems = await self._calls.follow(dead_letters.post(self._keys, letters, self.clock.now_ms()))
        except ServerError as error:
            problems = {"their queue": str(error)}
        for to, problem in problems.items():
            log.error("Dead letters of queue %s wait until %s takes them: %s", self.queue, to, problem)

    async def _notify(self, pending: PendingNotifications) -> None:
        """Send the notifications that one call could not. If they are lost, the flow reconciler re-sends them."""
        try:
            await self._calls.follow(notify_all([(self._keys, pending)], self.clock.now_ms()))
        except ServerError as error:
            log.error("Not all jobs that wait for jobs of queue %s were notified: %s", self.queue, error)

    async def listen(self, want: int, block_ms: int) -> Wakeup:
        """Block on the server for up to ``want`` jobs; return none if it timed out or the :attr:`waker` ended it."""
        if not self._hears_signals:
            await self._join_signals()  # earlier signals are handled: it only waits once it has found no job
        await self.waker.prepare()
        return await self._read(want, block_ms)

    async def watch(self, block_ms: int) -> Wakeup:
        """Block on the server until there is an undelivered job, and leave it and its signal there.

        Return only signals that something is due.
        """
        await self._join_signals()
        last = await self._waits.follow(queue_state.handed_out_until(self._keys))
        await self.waker.prepare()
        if self._hears_signals:
            found = await self._waits.run(exchanges.news(self._keys, last, self._last_heard, block_ms))
            for signal in (*found.signals, *found.due):  # one at the most
                self._last_heard = signal
            return Wakeup([], [], found.due)
        await self._waits.execute(exchanges.next_entry(self._keys, last, block_ms))
        return Wakeup([], [])

    async def read_signals(self) -> list[WorkerSignal]:
        """Wait for signals to this queue's workers."""
        stream = self._keys.wake
        try:
            signals = await self._signals.read(stream, self._last_signal)
        except ServerError as error:
            if error.code == "WRONGTYPE":  # perhaps only of another queue's key that is read together with this one's
                await self._signals.leave(stream)
                self._signals = SignalReader(self._calls)
            raise
        self._last_signal = signals[-1].id
        return signals

    async def follow_primary(self) -> None:
        """End blocking reads on a primary that sentinels are replacing, until cancelled. Without sentinels, return."""
        while self._waits.url.mode == "sentinel":
            await asyncio.sleep(_WATCH_S)
            await self._waits.leave_old_primary()
            await self._signals.leave_old_primary()

    async def reply(self, command: Command, facts: Mapping[str, object]) -> None:
        """Reply to a client's command."""
        calls = worker_signals.reply(self._keys, command, self._consumer, facts)
        await self._calls.pipeline(calls, atomic=True)

    async def aclose(self) -> None:
        """Stop reading signals; callers close the connections."""
        await self._signals.leave(self._keys.wake)

    async def _read(self, want: int, block_ms: int) -> Wakeup:
        if self._hears_signals:
            return await self._waits.run(exchanges.listen(self._keys, self._consumer, want, block_ms))
        read = exchanges.read_group(self._keys, self._consumer, want, block_ms)
        return Wakeup(await self._waits.run(read), [])

    async def drop_signals(self, signals: Sequence[str], *, pass_on: bool) -> None:
        """Acknowledge signals; with ``pass_on``, signal another idle worker."""
        wake = [worker_signals.wake_worker(self._keys)] if pass_on else []
        await self._calls.pipeline([*wake, *worker_signals.drop_signals(self._keys, signals)])

    async def recover(self, held: set[str]) -> Wakeup:
        """Recover after a broken connection: join again, and find what a lost reply delivered to this worker.

        Jobs that came from a list return to it, for any worker.
        """
        # A new socket has another client id.
        self.waker.forget()
        with self.outages.watch():
            await self.join()
            signals = await self._join_signals()
        now_ms = self.clock.now_ms()
        relist = exchanges.relist(self._keys, self._consumer, now_ms, held)
        if await self._calls.execute(relist, repeatable=True):
            await self._calls.execute(worker_signals.wake_worker(self._keys))  # this one may take no more
        deliveries = [delivery for delivery in await self._read_pending() if delivery.job_id not in held]
        return Wakeup(deliveries, signals)

    async def _read_pending(self) -> list[Delivery]:
        return await self._calls.run(exchanges.read_pending(self._keys, self._consumer))

    async def tick(self, *, heal: bool = False) -> Tick:
        """Promote what is due, and read the queue's settings. With ``heal``, also correct the count of list jobs."""
        return (await self._tick(self.clock.now_ms(), heal=heal))[0]

    async def tick_and_watch(
        self, interval_ms: int, signals: Sequence[str], *, heal: bool, fires: bool
    ) -> tuple[Tick, int]:
        """Tick, drop the signals that asked for it, and read when this worker must tick again.

        Args:
            interval_ms: The usual time until then.
            signals: The signals.
            heal: As for :meth:`tick`.
            fires: Whether it also fires repeatable jobs.

        Returns:
            The tick, and epoch ms, or -1 for the usual time: two workers of the queue watch for what is due sooner.
        """
        now_ms = self.clock.now_ms()
        watch = worker_signals.watch(self._keys, self._consumer, now_ms, now_ms + interval_ms, fires=fires)
        drop = worker_signals.drop_signals(self._keys, signals) if signals else ()
        tick, (watched, *_) = await self._tick(now_ms, watch.call, *drop, heal=heal)
        return tick, watch.read(watched)

    async def _tick(self, now_ms: int, *more: Call, heal: bool) -> tuple[Tick, list[Reply]]:
        asked = time.monotonic()
        with self.outages.watch():
            calls = worker_signals.tick(self._keys, now_ms, heal=heal), queue_settings.stored_settings(self._keys)
            replies = await self._calls.pipeline([*(operation.call for operation in calls), *more])
            ticked, stored, *others = all_good(replies)
        tick = calls[0].read(ticked)
        self.defaults.update(calls[1].read(stored))
        self.outages.set_lease(self.defaults.lease_ms / 1000)
        self.clock.set(tick.server_ms, asked, time.monotonic())
        # Before the first exchange, so that each later signal is read.
        self._last_signal = self._last_signal or f"{tick.server_ms - 1}-0"
        if self._named_queue is not None:
            await self._name_dead_letters()
        return tick, others

    async def reclaim(self) -> bool:
        """Recover stalled jobs, and fail suspended ones whose timeout expired.

        Returns:
            Whether any job may have become ready.
        """
        found = False
        for _ in range(_MOST_SWEEPS):
            now = self.clock.now_ms()
            stalled = exchanges.reclaim(
                self._keys,
                self._consumer,
                milliseconds(self._options.stalled_interval),
                self._options.max_stalled,
                self.defaults.forgiven_ms,
                now,
                dead_letter=self.defaults.dead_letter_queue,
                cluster=self._in_cluster,
            )
            with self.outages.watch():
                reclaimed = await self._calls.run(stalled)
            if reclaimed.failed:
                log.error(
                    "Jobs %s ended the lease of every worker that ran them, and failed: the process died, or their "
                    "handler held Python's GIL for longer than the lease; make it sandboxed",
                    ", ".join(reclaimed.failed),
                )
            if reclaimed.letters:
                await self._post(reclaimed.letters)
            if reclaimed.pending:
                await self._notify(reclaimed.pending)
            found = found or bool(reclaimed.retried or reclaimed.failed or reclaimed.timed_out)
            if not reclaimed.has_more:
                break
        return found

    def renew(self, connection: Connection, leases: Sequence[Lease], at_ms: int) -> list[Renewal]:
        """Renew leases, in the heartbeat's thread and through its connection."""
        return connection.run(exchanges.renew(self._keys, leases, at_ms))

    async def register(self, description: dict[str, object], ttl_ms: int) -> None:
        """Register this worker as alive."""
        await self._calls.execute(worker_registry.register(self._keys, self._consumer, description, ttl_ms))

    async def count(self, tally: Tally) -> None:
        """Add this worker's counts to the queue's statistics."""
        await self._calls.execute(statistics.count(self._keys, self.clock.now_ms(), tally))

    async def leave(self) -> None:
        """Remove this worker's registration, and its consumer unless it still has pending jobs."""
        held, remove = worker_registry.leave_group(self._keys, self._consumer, self._group)
        watch = worker_signals.watch(self._keys, self._consumer, self.clock.now_ms(), 0, fires=True)
        await self._calls.pipeline([worker_registry.unregister(self._keys, self._consumer), watch.call])
        if self._hears_signals:
            await self._leave_signals()
        # XGROUP DELCONSUMER drops the consumer's pending entries, after which no worker could take those jobs over.
        if not await self._calls.execute(held):
            await self._calls.execute(remove)

    async def _leave_signals(self) -> None:
        """Leave the group of signals to single workers, and pass on signals that this one has not handled."""
        with suppress(ServerError):  # another client removed the group or its key: idle workers look by themselves
            if await self._calls.execute(worker_signals.leave_signal_group(self._keys, self._consumer)):
                await self._calls.execute(worker_signals.wake_for_due(self._keys, self.clock.now_ms()))
