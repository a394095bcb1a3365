"""What a worker is told while it runs, by any thread: to pause, to change its concurrency, to stop."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from orchestration_queue.errors import UsageError
from orchestration_queue.options import Duration, WorkerOptions, milliseconds, seconds
from orchestration_queue.options.durations import checked_duration
from orchestration_queue.options.worker import checked_concurrency
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker.events import Announcer, Listener
from orchestration_queue.worker.heartbeat import SHUTDOWN_TIMEOUT_S
from orchestration_queue.worker.limits import WorkerLimits
from orchestration_queue.worker.loop import WorkerLoop
from orchestration_queue.worker.machine import Machine, Pause, Phase
from orchestration_queue.worker.slots import SharedSlots
from orchestration_queue.worker.stop_signals import running_loop
from orchestration_queue.worker.threads import Threads

__all__ = ["WorkerControl"]

log = logging.getLogger("orchestration_queue.worker")


class WorkerControl:
    """The part of a worker that others call. It has no connection: :class:`Worker` runs what it decides.

    Args:
        keys: The queue.
        options: Concurrency, drain and the like.
        slots: Places that it shares with the workers of other queues; None for slots of its own.

    Raises:
        UsageError: Batches are to fill shared slots.

    Attributes:
        id: This worker's name among those of the queue.
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
        # Of a worker that runs:
        self._loop: WorkerLoop | None = None
        self._threads: Threads | None = None
        self._limits: WorkerLimits

    def renamed(self) -> Self:
        """Give the worker a new id, for a process that is a copy of another; returns the worker itself.

        Raises:
            UsageError: It runs already.
        """
        if self._has_run:
            raise UsageError(f"Worker {self.id} has been started, so it keeps its id; make another `Worker`.")
        self.id = _new_id()
        return self

    @property
    def is_listening(self) -> bool:
        """Whether it is idle: waiting at the server for the next job."""
        return self._machine.listening > 0

    @property
    def is_paused(self) -> bool:
        """Whether it takes no jobs for now, for whatever reason."""
        return bool(self._machine.pauses)

    @property
    def running(self) -> int:
        """How many jobs run here at this moment."""
        return self._machine.running

    @property
    def concurrency(self) -> int:
        """How many jobs it runs at a time; with batches, how many of these."""
        return self._concurrency

    @property
    def may_receive(self) -> bool:
        """Whether jobs may still arrive that it had asked for; a paused worker hands them back."""
        return self._machine.may_receive

    def subscribe(self, listener: Listener) -> None:
        """Call a function, on this worker's loop, with each :class:`WorkerEvent` from now on.

        Raises:
            UsageError: It cannot be called.
        """
        if not callable(listener):
            raise UsageError(f"`listener` must be a function of one event, got {listener!r}; pass `def f(event)`.")
        self._announcer.listeners.append(listener)

    @property
    def was_killed(self) -> bool:
        """Whether :meth:`kill` was called."""
        return self._was_killed

    @property
    def was_dismissed(self) -> bool:
        """Whether a client stopped it, by :meth:`Queue.control_workers`."""
        return self._was_dismissed

    def dismiss(self) -> None:
        """Stop for good: as :meth:`stop`, and what supervises this process in :func:`run_workers` starts no other."""
        self._was_dismissed = True
        self.stop()

    def pause(self) -> None:
        """Take no new jobs, on this worker alone; the running ones go on. Any thread may call it."""
        self._call(self._pause, Pause.WORKER)

    def resume(self) -> None:
        """Take jobs again, unless the queue is paused. Any thread may call it."""
        self._call(self._resume, Pause.WORKER)

    def set_concurrency(self, concurrency: int) -> None:
        """Run at most ``concurrency`` jobs at a time; those that run go on. Any thread may call it.

        Raises:
            InvalidOptionError: It is no whole number from 1 to 10,000.
            UsageError: This worker has a process for each slot.
        """
        checked_concurrency(concurrency)
        if not self.can_resize:
            raise UsageError(f"Worker {self.id} has a process for each slot; restart it with another concurrency.")
        self._call(self._resize, concurrency)

    def _resize(self, concurrency: int) -> None:
        self._concurrency = concurrency
        size = self.options.batch.size if self.options.batch else 1
        self._machine.resize(concurrency * size, size)
        if self._threads is not None:
            self._threads.resize(concurrency)
        self._changed()

    def keep_away(self, delay: Duration) -> None:
        """Start no job on this worker for a while, as when the service that they all call asks for it."""
        delay = checked_duration(delay, "delay")
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
        """Stop a job that runs here at once; it fails as ``revoked``. Call it on the loop.

        Returns:
            False when it does not run here: cancel it through its queue then, which reaches every worker.
        """
        return self._loop is not None and self._loop.cancel(job_id)

    def _cancel_signalled(self, job_id: str, at_ms: int) -> None:
        """Cancel a job that a client cancelled at that time; it may run here, or be about to."""
        if self._loop is not None and self._loop.is_cancelled(job_id, at_ms):
            log.info("Job %r of queue %s is cancelled", job_id, self.keys.queue)
            self.cancel(job_id)

    def stop(self) -> None:
        """Take no new jobs, finish the running ones within ``options.drain``, and leave. Any thread may call it."""
        self._call(self._stop)

    def kill(self) -> None:
        """Leave at once: running jobs are given up, and other workers take them when their leases end.

        Outcomes are still sent, unless the server does not answer within two seconds. Any thread may call it.
        """
        self._was_killed = True
        self._call(self._kill)

    def _call(self, action: Callable[..., object], *args: object) -> None:
        """Do something on the worker's own event loop, or at once while it does not run."""
        loop = self._event_loop
        if loop is None or loop is running_loop():
            action(*args)
            return
        with suppress(RuntimeError):  # the loop was closed: the worker has left
            loop.call_soon_threadsafe(action, *args)

    def _stop(self) -> None:
        if self._machine.phase is not Phase.RUNNING:
            return
        log.info("Worker %s is draining: %d jobs are running", self.id, self.running)
        self._machine.drain()
        self._leaving.set()
        if self._loop is not None:
            self._limits.leave()
        self._changed()
        if self._event_loop is not None:
            self._deadline = self._event_loop.call_later(seconds(self.options.drain), self._drain_ended)

    def _drain_ended(self) -> None:
        """Give up what still runs, and name it."""
        if self._loop is not None and (left := [lease.job_id for lease in self._loop.running]):
            log.warning(
                "Worker %s of queue %s leaves %d jobs unfinished after a drain of %g s; other workers run them again "
                "when their leases end: %s",
                self.id,
                self.keys.queue,
                len(left),
                seconds(self.options.drain),
                _listed(left),
            )
        self._kill()

    def _kill(self) -> None:
        self._machine.abandon()
        self._leaving.set()
        if self._loop is not None:
            self._loop.give_up_all()
        if self._patience is not None and self._patience.when() is None:
            self._patience.reschedule(asyncio.get_running_loop().time() + SHUTDOWN_TIMEOUT_S)

    def _changed(self) -> None:
        """Let the machine decide again after a change."""
        if self._loop is not None:
            self._loop.change()

    def _look_again(self) -> None:
        self._machine.look_again()
        self._changed()

    def _pause(self, who: Pause) -> None:
        if who not in self._machine.pauses:
            self._machine.pause(who)
            self._changed()

    def _resume(self, who: Pause) -> None:
        if who in self._machine.pauses:
            self._machine.resume(who)
            self._changed()


def _listed(job_ids: Sequence[str], most: int = 20) -> str:
    more = f" and {len(job_ids) - most} more" if len(job_ids) > most else ""
    return ", ".join(job_ids[:most]) + more


def _new_id() -> str:
    return f"worker-{now_ms()}-{secrets.token_hex(4)}"


def _machine(options: WorkerOptions, shared: SharedSlots | None) -> Machine:
    if options.batch is None:
        return Machine(options.concurrency, shared=shared)
    if shared is not None:
        raise UsageError("A batch waits until its slots are full, which shared ones may never be; drop one of both.")
    size = options.batch.size
    slots = options.concurrency * size
    return Machine(slots, batch_size=max(size, -(-slots // 2)))
