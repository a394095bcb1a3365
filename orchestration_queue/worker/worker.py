"""The worker: takes jobs of one queue, runs their handlers, and settles their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError, UsageError
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.options import WorkerOptions, as_timedelta, milliseconds, seconds
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.dead_letters import dead_letter_keys
from orchestration_queue.protocol.operations.exchanges import Renewal
from orchestration_queue.protocol.operations.worker_signals import Tick
from orchestration_queue.protocol.outcome import Strategy
from orchestration_queue.server import AsyncConnection, Connection, ServerUrl
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker.batches import BatchRouter
from orchestration_queue.worker.connections import SignalReader, WorkerConnections
from orchestration_queue.worker.control import WorkerControl
from orchestration_queue.worker.events import WorkerEventType
from orchestration_queue.worker.heartbeat import SHUTDOWN_TIMEOUT_S, Heartbeat
from orchestration_queue.worker.interfaces import (
    Handler,
    LeaseObserver,
    Lifespan,
    Middleware,
    OptionDefaults,
    Router,
    check_collaborators,
    check_handler,
    check_options,
)
from orchestration_queue.worker.limits import WorkerLimits
from orchestration_queue.worker.loop import WorkerLoop
from orchestration_queue.worker.machine import Pause, Phase
from orchestration_queue.worker.maintenance import Maintenance
from orchestration_queue.worker.outages import Outages, until_available
from orchestration_queue.worker.queue_io import QueueIO
from orchestration_queue.worker.remote_control import RemoteControl, describe_worker, task_names
from orchestration_queue.worker.reserved import reserved_handlers
from orchestration_queue.worker.runner import Runner
from orchestration_queue.worker.sandbox.handler import refuse_worker_while_importing
from orchestration_queue.worker.scheduler_leader import SchedulerLeader
from orchestration_queue.worker.signals import stopping_on_signals
from orchestration_queue.worker.slots import SharedSlots
from orchestration_queue.worker.threads import Threads

__all__ = ["Worker"]

log = get_logger("orchestration_queue.worker")

T = TypeVar("T")

_REGISTERED_MS = 3000
"""Minimum life of a registration, which is renewed at most once a second."""
_PROMPT_S = 0.5
"""Maximum time for a server to let a worker join. After a longer one, others get half a lease to renew theirs."""
_KEPT_AWAY = timedelta(seconds=1)
"""Pause after an upstream service refused a job, unless the handler or the options say how long."""


class Worker(WorkerControl):
    """Takes jobs of one queue and runs them.

    A handler returns the job's result, or raises to fail the attempt. It can be a coroutine function, which runs on the
    event loop, or a plain function, which runs in a thread. Delivery is at least once: a job runs again if its worker
    dies, or stops renewing its lease, before the outcome was reported.

    Args:
        queue: The queue's name.
        handler: One handler for all jobs, or a router such as :class:`orchestration_queue.tasks.Tasks`. With
            ``options.batch``, a handler takes a list of jobs and returns a list of results.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        options: Concurrency, lease, intervals and limits, or a dict of these.
        prefix: First part of every key.
        middleware: What to wrap around every run of a handler, outermost first, inside of the router's own.
        strategies: Custom backoffs, by the name that a job's :class:`Backoff` has for its type.
        slots: Slots shared with the workers of other queues on the same event loop, of which it takes at most
            ``options.concurrency``; default: its own slots.

    Raises:
        InvalidNameError: The queue's name, or that of its dead-letter queue, is invalid.
        InvalidOptionError: The queue would be its own dead-letter queue.
        UsageError: The options ask for batches with tasks, which take one job, or with shared slots.

    Attributes:
        id: This worker's id, unique in its queue.

    Examples:
        >>> async def greet(job: AsyncActiveJob) -> str:
        ...     return f"Hello, {job.data['name']}"
        >>> asyncio.run(Worker("greetings", greet).run())  # doctest: +SKIP
    """

    _has_steps = True

    def __init__(
        self,
        queue: str,
        handler: Handler | Router,
        *,
        url: str | ServerUrl | None = None,
        options: WorkerOptions | Mapping[str, Any] | None = None,
        prefix: str = DEFAULT_PREFIX,
        middleware: Sequence[Middleware] = (),
        strategies: Mapping[str, Strategy] | None = None,
        slots: SharedSlots | None = None,
    ) -> None:
        keys, checked = QueueKeys(queue, prefix), check_options(options)
        check_handler(handler)
        check_collaborators(url, middleware, strategies, slots)
        if checked.dead_letter_queue is not None:
            dead_letter_keys(keys, checked.dead_letter_queue)
        if checked.batch is not None and not getattr(handler, "takes_batches", True):
            raise UsageError(
                "`options.batch` passes several jobs to a handler at once, but a task takes the arguments of one; "
                "pass a function of a list of jobs, or drop the batch."
            )
        super().__init__(keys, checked, slots)
        self._handler = handler
        self._url = url
        given: object = handler
        self._lifespan = given if isinstance(given, Lifespan) else None
        self._lease_observer = given if isinstance(given, LeaseObserver) else None
        self._default_options = given.default_options if isinstance(given, OptionDefaults) else None
        brought = self._lifespan.middleware if self._lifespan else ()
        self._middleware = (*brought, *middleware)
        self._strategies = strategies
        self._started_ms = now_ms()
        self._heartbeat: Heartbeat | None = None
        self._has_joined = False
        self._lease_ms = milliseconds(checked.lease)
        self._io: QueueIO

    @property
    def io(self) -> QueueIO:
        """The worker's connections and clock; set before its first job starts."""
        return self._io

    @property
    def is_ready(self) -> bool:
        """Whether it has joined the queue, reaches the server, and is not stopping."""
        machine = self._machine
        return self._has_joined and machine.phase is Phase.RUNNING and not machine.needs_recovery

    @property
    def leases_renewed(self) -> int:
        """How many leases it has renewed so far."""
        return self._heartbeat.renewed if self._heartbeat else 0

    async def run(self) -> None:
        """Serve until :meth:`stop` is called.

        On the main thread, SIGTERM and SIGINT also stop the worker, and a second one kills it: each unless the program
        handles or ignores it. If the server is unreachable, at the start or later, it waits.

        Raises:
            UsageError: The worker is running, or has run.
        """
        if self._has_run:
            raise UsageError(f"Worker {self.id} has been started already, and runs only once; create another `Worker`.")
        self._has_run = True
        refuse_worker_while_importing()
        self._event_loop = asyncio.get_running_loop()
        with stopping_on_signals(self.stop, self.kill):
            await self._serve()

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(None) as self._patience:
                    await self._work(stack)
            except TimeoutError:
                if self._patience is None or not self._patience.expired():
                    raise
            finally:
                self._patience = None

    async def _work(self, stack: AsyncExitStack) -> None:
        """Run until it is time to leave; the stack holds what must be done then."""
        if (shared := self._machine.shared) is not None:
            shared.join(self._machine)
            stack.callback(shared.leave, self._machine)
        outages = Outages(seconds(self.options.lease))
        connections = WorkerConnections.of(self._url, shared)
        # Whatever is pushed here ends in reverse order: jobs and maintenance first, the connections they use last.
        with outages.watch(_PROMPT_S):
            calls = await self._until_available(connections.join)
        if calls is None:
            return
        stack.push_async_callback(connections.leave)
        waits = await calls.duplicate()
        stack.push_async_callback(waits.aclose)
        if self._lifespan is not None:
            await stack.enter_async_context(self._lifespan.lifespan())
        self._threads = threads = Threads(self._concurrency)
        # No wait: a handler in a thread cannot be stopped, and would hold the process beyond its drain.
        stack.callback(threads.shutdown)
        self._io = io = self._make_queue_io(calls, waits, connections.signals_of(self.keys.wake, calls))
        stack.push_async_callback(self._leave)
        stack.push_async_callback(io.aclose)
        io.outages = outages
        with outages.watch(_PROMPT_S):
            first = await self._until_available(io.set_clock)
        if first is None:
            return
        loop = asyncio.get_running_loop()
        self._heartbeat = heartbeat = Heartbeat(
            self._renew,
            io.clock.now_ms,
            connections.renewals,
            seconds(self.options.lease),
            on_end=lambda lease, why: loop.call_soon_threadsafe(self._note_renewal, lease, why),
        )
        stack.callback(heartbeat.close)
        exceeded = partial(self._announcer.emit, WorkerEventType.BUDGET_EXCEEDED)
        self._limits = WorkerLimits(self.options, self.keys, calls, io.clock.now_ms, exceeded)
        stack.push_async_callback(self._limits.pools.aclose)
        interval = as_timedelta(self.options.promotion_interval)
        leader = SchedulerLeader(self.keys, calls, interval, io.clock.now_ms)
        runner = self._make_runner(calls, threads)
        stack.push_async_callback(runner.aclose)
        self._loop = loop_ = WorkerLoop(self._machine, io, runner, heartbeat, leader, self._announcer, self.options)
        stack.push_async_callback(loop_.end)
        maintenance = self._make_maintenance(leader, heartbeat, self._make_reconciler())
        loop_.on_due, loop_.on_due_signals = maintenance.due_at, maintenance.tick_now
        maintaining = asyncio.ensure_future(maintenance.run())
        stack.push_async_callback(_cancel, maintaining)
        maintaining.add_done_callback(lambda _: self._kill())  # they only end with an error, which is raised
        await self._until_available(io.join)
        self._has_joined = True
        self._apply_tick(first)  # read whether the queue is paused, or limited, before the first job is taken
        slots = self._machine.slots
        log.info("Worker %s takes jobs of queue %s, %d at a time", self.id, self.keys.queue, slots)
        await loop_.drive()

    async def _until_available(self, attempt: Callable[[], Awaitable[T]]) -> T | None:
        """Retry until the server is available; return None if the worker was stopped first."""
        return await until_available(attempt, self._leaving, f"Worker {self.id} of queue {self.keys.queue}")

    # Overridden by BroadcastWorker.

    def _make_queue_io(self, calls: AsyncConnection, waits: AsyncConnection, signals: SignalReader) -> QueueIO:
        return QueueIO(self.keys, self.id, calls, waits, self.options, signals)

    def _renew(self, connection: Connection, leases: Sequence[Lease], at_ms: int) -> list[Renewal]:
        renew = partial(self._io.renew, connection, leases, at_ms)
        answers = renew() if self._lease_observer is None else self._lease_observer.observe_renewal(leases, renew)
        renewed = [lease for lease, answer in zip(leases, answers, strict=True) if answer is Renewal.RENEWED]
        self._limits.pools.renew(connection, renewed)
        return answers

    def _make_runner(self, calls: AsyncConnection, threads: Threads) -> Runner:
        handler = self._handler
        if self.options.batch is not None:
            handler = BatchRouter(handler, self.options.batch, threads)
        limit = self.options.rate_limit
        return Runner(
            handler,
            self.keys,
            calls,
            threads,
            self._middleware,
            around=self._limits.around,
            strategies=self._strategies,
            rate_limit_delay=as_timedelta(limit.duration) if limit else _KEPT_AWAY,
            on_rate_limit=lambda delay_ms: self.keep_away(timedelta(milliseconds=delay_ms)),
            default_options=self._options_of,
            reserved=reserved_handlers(self.keys, calls),
            has_steps=self._has_steps,
        )

    def _make_reconciler(self) -> FlowReconciler:
        options = self.options
        return FlowReconciler(
            self.keys,
            self._io.clock.now_ms,
            interval=as_timedelta(options.flow_interval),
            patience=as_timedelta(options.abandon_flows_after),
        )

    def _make_maintenance(
        self, leader: SchedulerLeader, heartbeat: Heartbeat, reconciler: FlowReconciler
    ) -> Maintenance:
        return Maintenance(
            self._io,
            self.options,
            leader=leader if self.options.run_schedulers else None,
            reconciler=reconciler,
            heartbeat=heartbeat,
            on_ready=self._look_again,
            on_tick=self._apply_tick,
            on_register=self._register,
            on_cancel=self._cancel_signalled,
            on_command=RemoteControl(self, self._register).obey,
        )

    async def _leave(self) -> None:
        for timer in (self._deadline, self._away):
            if timer is not None:
                timer.cancel()
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                await self._io.leave()
        except OrchestrationQueueError:
            pass  # its registration expires
        except TimeoutError:
            log.warning("Worker %s leaves without a reply from its server", self.id)

    def _note_renewal(self, lease: Lease, answer: Renewal) -> None:
        if self._loop is not None:
            self._loop.renewed(lease, answer)

    def _options_of(self, name: str) -> Mapping[str, Any]:
        """Return options of jobs that were added without them: the task's before the queue's."""
        own = self._default_options(name) if self._default_options is not None else {}
        queues = self._io.defaults.stored.job_options
        return {**queues, **own} if queues else own

    def _apply_tick(self, tick: Tick) -> None:
        if self._heartbeat is not None and self._io.defaults.lease_ms != self._lease_ms:
            self._lease_ms = self._io.defaults.lease_ms
            self._heartbeat.set_usual_lease(self._lease_ms / 1000)
        was_paused = Pause.QUEUE in self._machine.pauses
        is_paused = tick.is_paused and self.options.honor_pause
        (self._pause if is_paused else self._resume)(Pause.QUEUE)
        if is_paused is not was_paused:
            log.info("Queue %s is %s", self.keys.queue, "paused" if is_paused else "running again")
        self._limits.refresh(tick)

    def _describe(self) -> dict[str, object]:
        """Return what this kind of worker adds to its registration; nothing by default."""
        return {}

    async def _register(self) -> None:
        running = self._loop.running if self._loop is not None else ()
        description = describe_worker(
            self, self._started_ms, running, task_names(self._handler), self._strategies or ()
        )
        description |= self._describe()
        # At least twice the pause between two renewals, see Maintenance.
        await self._io.register(description, max(_REGISTERED_MS, milliseconds(self.options.stalled_interval)))


async def _cancel(task: asyncio.Future[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
