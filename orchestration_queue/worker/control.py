"""Control of a running worker, from any thread or by signals: pause it, change its concurrency, stop it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import UsageError
from orchestration_queue.options import Duration, WorkerOptions, milliseconds, seconds
from orchestration_queue.options.durations import check_duration
from orchestration_queue.options.worker import check_concurrency
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker.events import Announcer, Listener
from orchestration_queue.worker.heartbeat import SHUTDOWN_TIMEOUT_S
from orchestration_queue.worker.limits import WorkerLimits
from orchestration_queue.worker.loop import WorkerLoop
from orchestration_queue.worker.machine import Machine, Pause, Phase
from orchestration_queue.worker.observability import list_ids
from orchestration_queue.worker.slots import SharedSlots
from orchestration_queue.worker.threads import Threads

__all__ = ["WorkerControl", "running_loop"]

log = get_logger("orchestration_queue.worker")


class WorkerControl:
    """The part of a worker that other code calls. It has no connection: :class:`Worker` carries out what it decides.

    Args:
        keys: The queue.
        options: The worker's options.
        slots: Slots shared with the workers of other queues; None for its own.

    Raises:
        UsageError: Batches were requested with shared slots.

    Attributes:
        id: This worker's id, unique in its queue.
    """

    can_resize = True
    """Whether its concurrency may change while it runs."""

    def __init__(self, keys: QueueKeys, options: WorkerOptions, slots: SharedSlots | None) -> None:
        self.id = _new_id()
        self.keys = keys
        self.options = options
        self._machine = _machine(options, slots)
        self._concurrency = options.concurrency
        self._announcer = Announcer()
        self._leaving = asyncio.Event()
        self._has_run = self._was_killed = self._was_dismissed = False
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._away: asyncio.TimerHandle | None = None
        self._patience: asyncio.Timeout | None = None
        self._loop: WorkerLoop | None = None
        self._threads: Threads | None = None
        self._limits: WorkerLimits

    def renamed(self) -> Self:
        """Give the worker a new id, in a process that is a copy of another; return the worker itself.

        Raises:
            UsageError: It is already running.
        """
        if self._has_run:
            raise UsageError(f"Worker {self.id} has been started, so it keeps its id; create another `Worker`.")
        self.id = _new_id()
        return self

    @property
    def is_listening(self) -> bool:
        """Whether it is idle: blocked on the server until the next job."""
        return self._machine.listening > 0

    @property
    def is_paused(self) -> bool:
        """Whether it takes no jobs at the moment, for any reason."""
        return bool(self._machine.pauses)

    @property
    def running(self) -> int:
        """How many jobs it is running."""
        return self._machine.running

    @property
    def concurrency(self) -> int:
        """How many jobs, or batches, it runs at a time."""
        return self._concurrency

    @property
    def may_receive(self) -> bool:
        """Whether jobs may still arrive that it requested; a paused worker returns them."""
        return self._machine.may_receive

    def subscribe(self, listener: Listener) -> None:
        """Call a function, on this worker's event loop, with each :class:`WorkerEvent` from now on.

        Raises:
            UsageError: It is not callable.
        """
        if not callable(listener):
            raise UsageError(f"`listener` must be a function of one event, got {listener!r}; pass `def f(event)`.")
        self._announcer.listeners.append(listener)

    @property
    def was_killed(self) -> bool:
        """Whether it gave up jobs: by :meth:`kill`, or because they outlasted its drain."""
        return self._was_killed

    @property
    def was_dismissed(self) -> bool:
        """Whether a client stopped it, by :meth:`Queue.control_workers`."""
        return self._was_dismissed

    def dismiss(self) -> None:
        """Stop as :meth:`stop` does, and let the supervisor of this process in :func:`run_workers` start no other."""
        self._was_dismissed = True
        self.stop()

    def pause(self) -> None:
        """Take no new jobs on this worker; running ones continue. Thread-safe."""
        self._call(self._pause, Pause.WORKER)

    def resume(self) -> None:
        """Take jobs again, unless the queue is paused. Thread-safe."""
        self._call(self._resume, Pause.WORKER)

    def set_concurrency(self, concurrency: int) -> None:
        """Run at most ``concurrency`` jobs at a time; running ones continue. Thread-safe.

        Raises:
            InvalidOptionError: It is not an integer from 1 to 10,000.
            UsageError: This worker has a process for each slot.
        """
        check_concurrency(concurrency)
        if not self.can_resize:
            raise UsageError(
                f"Worker {self.id} can't change its concurrency, because it has a process per slot; restart it."
            )
        self._call(self._resize, concurrency)

    def _resize(self, concurrency: int) -> None:
        self._concurrency = concurrency
        size = self.options.batch.size if self.options.batch else 1
        self._machine.resize(concurrency * size, size)
        if self._threads is not None:
            self._threads.resize(concurrency)
        self._wake_loop()

    def keep_away(self, delay: Duration) -> None:
        """Start no job on this worker for some time, for example because a service refuses requests."""
        delay = check_duration(delay, "delay")
        loop = asyncio.get_running_loop()
        end = loop.time() + delay.total_seconds()
        if self._away is not None:
            end = max(end, self._away.when())
            self._away.cancel()
        self._away = loop.call_at(end, self._resume, Pause.LIMIT)
        if self._loop is not None:
            self._limits.pause_for(milliseconds(delay))
        self._pause(Pause.LIMIT)

    def cancel(self, job_id: str) -> bool:
        """Stop a job that this worker runs; it fails as ``revoked``. Call it on the worker's event loop.

        Returns:
            False if this worker doesn't run it; cancel it through its queue instead, which reaches all workers.
        """
        return self._loop is not None and self._loop.cancel(job_id)

    def _cancel_signalled(self, job_id: str, at_ms: int) -> None:
        """Cancel a job that a client cancelled at that time, if it runs here or is about to."""
        if self._loop is not None and self._loop.is_cancelled(job_id, at_ms):
            log.info("Job %r of queue %s is cancelled", job_id, self.keys.queue)
            self.cancel(job_id)

    def stop(self) -> None:
        """Take no new jobs, finish the running ones within ``options.drain``, and stop. Thread-safe."""
        self._call(self._stop)

    def kill(self) -> None:
        """Stop immediately: running jobs are given up, and other workers take them over when their leases expire.

        Outcomes are still sent, unless the server doesn't answer within two seconds. Thread-safe.
        """
        self._was_killed = True
        self._call(self._kill)

    def _call(self, action: Callable[..., object], *args: object) -> None:
        """Call a function on the worker's event loop, or directly if the worker is not running."""
        loop = self._event_loop
        if loop is None or loop is running_loop():
            action(*args)
            return
        with suppress(RuntimeError):  # the loop is closed: the worker has stopped
            loop.call_soon_threadsafe(action, *args)

    def _stop(self) -> None:
        if self._machine.phase is not Phase.RUNNING:
            return
        log.info("Worker %s is draining: %d jobs are running", self.id, self.running)
        self._machine.drain()
        self._leaving.set()
        if self._loop is not None:
            self._limits.leave()
        self._wake_loop()
        if self._event_loop is not None:
            self._deadline = self._event_loop.call_later(seconds(self.options.drain), self._end_drain)

    def _end_drain(self) -> None:
        """Give up the jobs that still run or whose outcomes the server may not have, and log their ids."""
        running = [] if self._loop is None else [lease.job_id for lease in self._loop.running]
        ended = [outcome.lease.job_id for outcome in self._machine.unsent]
        for ids, what in ((running, "unfinished"), (ended, "without an answer to their outcomes")):
            if ids:
                self._was_killed = True
                log.warning(
                    "Worker %s of queue %s leaves %d jobs %s after a drain of %g s; other workers run them again when "
                    "their leases end: %s",
                    self.id,
                    self.keys.queue,
                    len(ids),
                    what,
                    seconds(self.options.drain),
                    list_ids(ids),
                )
        self._kill()

    def _kill(self) -> None:
        self._machine.abandon()
        self._leaving.set()
        if self._loop is not None:
            self._loop.give_up_all()
        # Once only: a second signal must not extend the time.
        if self._patience is not None and self._patience.when() is None:
            self._patience.reschedule(asyncio.get_running_loop().time() + SHUTDOWN_TIMEOUT_S)

    def _wake_loop(self) -> None:
        """Run the state machine again after a change."""
        if self._loop is not None:
            self._loop.change()

    def _look_again(self) -> None:
        self._machine.look_again()
        self._wake_loop()

    def _pause(self, who: Pause) -> None:
        if who not in self._machine.pauses:
            self._machine.pause(who)
            self._wake_loop()

    def _resume(self, who: Pause) -> None:
        if who in self._machine.pauses:
            self._machine.resume(who)
            self._wake_loop()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; None without one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _new_id() -> str:
    return f"worker-{now_ms()}-{secrets.token_hex(4)}"


def _machine(options: WorkerOptions, shared: SharedSlots | None) -> Machine:
    if options.batch is None:
        return Machine(options.concurrency, shared=shared)
    if shared is not None:
        raise UsageError("`batch` can't be used with shared `slots`, which a batch might never fill; drop one of them.")
    size = options.batch.size
    slots = options.concurrency * size
    return Machine(slots, batch_size=max(size, -(-slots // 2)))
