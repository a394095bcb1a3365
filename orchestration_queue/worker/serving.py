"""Run workers until SIGTERM or SIGINT, in one process or several; one worker for each shard of a queue."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue._process import die_with_parent
from orchestration_queue.errors import UsageError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.outcome import Strategy
from orchestration_queue.protocol.shards import shard_names
from orchestration_queue.server import ServerUrl
from orchestration_queue.worker.control import running_loop
from orchestration_queue.worker.interfaces import Handler, Middleware, Router, check_options
from orchestration_queue.worker.signals import STOP_SIGNALS, handling_signals, owning_signals
from orchestration_queue.worker.slots import SharedSlots
from orchestration_queue.worker.worker import Worker

__all__ = ["run_workers", "shard_workers"]

log = get_logger("orchestration_queue.worker")

_RESTART_AFTER_S = 1.0
"""How long to wait before replacing a worker process that died, so that one that can't start doesn't spin."""

_DISMISSED = 3
"""Exit status of a process whose workers were all stopped by a client."""


def shard_workers(
    queue: str,
    handler: Handler | Router,
    shards: int,
    *,
    url: str | ServerUrl | None = None,
    options: WorkerOptions | Mapping[str, Any] | None = None,
    prefix: str = DEFAULT_PREFIX,
    middleware: Sequence[Middleware] = (),
    strategies: Mapping[str, Strategy] | None = None,
) -> list[Worker]:
    """Create a worker for each shard of a queue. They share ``options.concurrency`` slots and take turns.

    They also share connections: each has only its blocking read, and a heartbeat. An idle shard is polled twice per
    ``options.block``. With many processes, let each serve some of the shards: ``Worker(name, ..., slots=slots)`` for
    these shards' names.

    Args:
        queue: The first part of the shards' names.
        handler: As for :class:`Worker`; a job's ``queue`` is its shard's name.
        shards: How many there are. More than the producers use is harmless; with fewer, jobs are left waiting.
        url: The server or cluster; default ``OQ_URL``, or else the embedded server of this directory.
        options: As for :class:`Worker`; ``concurrency`` is that of all shards together.
        prefix: First part of every key.
        middleware: As for :class:`Worker`.
        strategies: As for :class:`Worker`.

    Returns:
        The workers, in their shards' order; pass them to :func:`run_workers`.

    Raises:
        InvalidNameError: A shard's name is invalid.
        InvalidOptionError: The number of shards or an option is out of range.
        UsageError: An argument has the wrong type, or the options ask for batches.

    Examples:
        >>> run_workers(*shard_workers("events", store, 8))  # doctest: +SKIP
    """
    checked = check_options(options)
    slots = SharedSlots(checked.concurrency, "round-robin")
    return [
        Worker(
            name,
            handler,
            url=url,
            options=checked,
            prefix=prefix,
            middleware=middleware,
            strategies=strategies,
            slots=slots,
        )
        for name in shard_names(queue, shards)
    ]


def run_workers(*workers: Worker, processes: int = 1) -> bool:
    """Run workers until SIGTERM or SIGINT, then finish running jobs. A second signal stops immediately. Blocks.

    If one worker fails, the others stop too. Workers stopped by ``Queue.control_workers`` are not replaced.

    Args:
        *workers: Workers that have not run yet.
        processes: How many processes run all of them, each with the workers' full concurrency. With more than 1, this
            process only supervises: it passes signals on and replaces a process that dies.

    Returns:
        Whether it gave up jobs, which other workers run again: after a second signal, or at the end of the drain.

    Raises:
        UsageError: There is no worker, ``processes`` is less than 1, or an event loop runs in this thread.

    Examples:
        >>> run_workers(Worker("mail", send), Worker("reports", write), processes=4)  # doctest: +SKIP
    """
    if not workers or not all(isinstance(worker, Worker) for worker in workers):
        raise UsageError(f"run_workers() needs one or more workers, got {workers!r}; pass `Worker(queue, handler)`.")
    if not isinstance(processes, int) or isinstance(processes, bool) or processes < 1:
        raise UsageError(f"`processes` must be a whole number >= 1, got {processes!r}; pass `processes=1`.")
    if running_loop() is not None:
        raise UsageError("run_workers() would block the event loop that runs in this thread; use `await worker.run()`.")
    gc.collect()
    gc.freeze()  # a full collection of imported objects blocks all jobs for 20 to 70 ms
    try:
        if processes == 1:
            return asyncio.run(_serve(*workers))
        return _Processes(processes, lambda: _serve_child(*[worker.renamed() for worker in workers])).run()
    finally:
        gc.unfreeze()


def _serve_child(*workers: Worker) -> int:
    """Run the workers in a supervised process; return its exit status."""
    was_killed = asyncio.run(_serve(*workers))
    return _DISMISSED if all(worker.was_dismissed for worker in workers) else int(was_killed)


async def _serve(*workers: Worker) -> bool:
    """Run the workers until they stop; return whether any was killed."""
    try:
        async with asyncio.TaskGroup() as together:
            for worker in workers:
                together.create_task(worker.run())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the others were only cancelled
    return any(worker.was_killed for worker in workers)


class _Processes:
    """Forks worker processes, replaces those that die, and passes signals on."""

    def __init__(self, count: int, serve: Callable[[], int]) -> None:
        self._count = count
        self._serve = serve
        self._children: set[int] = set()
        self._received = 0
        self._gave_up = False

    def run(self) -> bool:
        with owning_signals(), handling_signals(self._pass_on):
            while self._children or (self._count and not self._received):
                self._fill()
                self._wait()
        return self._gave_up

    def _fill(self) -> None:
        """Fork missing processes. A signal that arrives meanwhile is passed on to the new ones, too."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            while len(self._children) < self._count and not self._received:
                self._fork()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def _fork(self) -> None:
        parent = os.getpid()
        if child := os.fork():
            self._children.add(child)
            return
        status = 1
        try:
            # The supervisor's handlers came along with the fork, and would pass a signal on to the other processes.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            os.setpgid(0, 0)  # a terminal's Ctrl-C reaches only the supervisor, which passes it on once
            die_with_parent(parent, signal.SIGTERM)
            status = self._serve()
        except BaseException:
            log.exception("Worker process %d failed", os.getpid())
        finally:
            # os._exit() skips the supervisor's `finally` blocks and exit hooks, of which this process has copies.
            logging.shutdown()
            os._exit(status)

    def _wait(self) -> None:
        child, status = os.wait()
        self._children.discard(child)
        code = os.waitstatus_to_exitcode(status)
        if self._received:
            # A process that doesn't handle signals yet ends with the first, and has nothing to give up.
            self._gave_up = self._gave_up or code not in (0, _DISMISSED, -signal.SIGTERM)
            return
        if code == _DISMISSED:
            self._count -= 1
            log.info("Worker process %d was stopped by a client and is not replaced", child)
            return
        log.error("Worker process %d ended with status %d and is replaced", child, code)
        time.sleep(_RESTART_AFTER_S)

    def _pass_on(self, _number: int, _frame: object) -> None:
        self._received += 1
        for child in self._children:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(child, signal.SIGTERM)
