"""The worker of qless's queues."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError, SandboxedError, UnrecoverableError, UsageError
from orchestration_queue.options.durations import seconds
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.outcome import reason_of, traceback_of
from orchestration_queue.server import ServerUrl
from orchestration_queue.wires.handling import HandlerRunner, WireMiddleware, run_on_shutdown
from orchestration_queue.wires.limits import StartLimiter
from orchestration_queue.wires.qless._async.client import AsyncQlessClient
from orchestration_queue.wires.qless._async.connection import AsyncQlessEvents
from orchestration_queue.wires.qless.commands import command, text_word, text_words
from orchestration_queue.wires.qless.handlers import FORM, QlessHandler, QlessNext, QlessRouter, handler_of_class
from orchestration_queue.wires.qless.leases import QlessLeaseRenewer
from orchestration_queue.wires.qless.options import Outcome, QlessObserver, QlessWorkerOptions
from orchestration_queue.wires.qless.records import QlessJob
from orchestration_queue.wires.qless.settling import QlessCompletion, QlessSettler
from orchestration_queue.worker.interfaces import check_handler
from orchestration_queue.worker.signals import STOP_SIGNALS, stopping_on_signals

__all__ = ["QlessWorker"]

log = get_logger("orchestration_queue.qless")

_PAUSE_S = 0.5


class QlessWorker:
    """Takes jobs of qless's queues and runs them, beside workers of other clients.

    A handler returns to complete its job, returns :class:`QlessNext` to move it on, or raises to fail it, in the group
    ``<queue>-<exception>``. A coroutine function runs on the event loop, a plain function in a thread, and a
    :func:`~orchestration_queue.sandboxed` one in a separate process, with a new working directory per job. Locks are
    renewed while handlers run. A handler on the event loop or in a process is stopped as soon as its job's lock is lost
    or the job is cancelled; the result of one in a thread is then discarded.

    Args:
        queues: The queues' names, the most important first.
        handler: One handler for all jobs, or a router by class; None runs the method of the Python class that a job
            names, as :func:`handler_of_class` finds it.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        name: The worker's unique name; default: generated from host and process.
        options: Concurrency, order and retries.
        observer: Called for each event of the worker, for metrics.
        middleware: What to wrap around every run of a handler, outermost first: coroutine functions of the job and of a
            function that runs the rest, on the worker's event loop. They return the result, or raise to fail the job.

    Raises:
        UsageError: An argument is invalid.

    Attributes:
        name: The worker's name.
    """

    def __init__(
        self,
        queues: str | Sequence[str],
        handler: QlessHandler | QlessRouter | None = None,
        *,
        url: str | ServerUrl | None = None,
        name: str | None = None,
        options: QlessWorkerOptions | None = None,
        observer: QlessObserver | None = None,
        middleware: Sequence[WireMiddleware] = (),
    ) -> None:
        if handler is not None:
            check_handler(handler)
        if observer is not None and not isinstance(observer, QlessObserver):
            raise UsageError(f"`observer` must be a QlessObserver, got {observer!r}; derive yours from it.")
        self._queues = text_words([queues] if isinstance(queues, str) else queues, "queues")
        own = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.name = own if name is None else text_word(name, "name")
        self._handler = handler
        self._observer = observer or QlessObserver()
        self._options = QlessWorkerOptions.coerce(options, "options")
        self._handlers = HandlerRunner(FORM, self._options.concurrency, middleware)
        self._client = AsyncQlessClient(url=url, worker=self.name)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._limiters: dict[str, StartLimiter] = {}
        self._turn = 0
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def running(self) -> int:
        """How many jobs it is running."""
        return len(self._running)

    def stop(self) -> None:
        """Take no new jobs, finish the running ones within ``options.shutdown_timeout``, and return from `run`.

        Thread-safe.
        """
        self._is_stopping = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._freed.set)

    async def run(self) -> None:
        """Serve until :meth:`stop` is called.

        On the main thread, SIGTERM, SIGINT and SIGQUIT also stop it: each unless the program handles or ignores it.

        Raises:
            TransportError: The server is unreachable at the start. Later outages are survived.
        """
        self._loop = asyncio.get_running_loop()
        self._freed = asyncio.Event()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._client)
            connection = await self._client._connection()
            stack.enter_context(stopping_on_signals(self.stop, numbers=(*STOP_SIGNALS, signal.SIGQUIT)))
            if (lifespan := getattr(self._handler, "lifespan", None)) is not None:
                await stack.enter_async_context(lifespan())
            await stack.enter_async_context(self._handlers)
            loop = self._loop
            self._leases = QlessLeaseRenewer(
                connection.url, self.name, lambda job: loop.call_soon_threadsafe(self._lost, job)
            )
            # In a thread: it waits for renewals in progress, which the event loop must not.
            stack.push_async_callback(asyncio.to_thread, self._leases.close)
            self._settler = QlessSettler(connection, self.name)
            if limit := self._options.rate_limit:
                self._limiters = {
                    queue: StartLimiter(limit, connection, f"oq:qless:starts:{queue}") for queue in self._queues
                }
            stack.push_async_callback(run_on_shutdown, partial(self._client.deregister, self.name))
            stack.push_async_callback(run_on_shutdown, self._settler.flush)
            stack.push_async_callback(self._finish)
            listening = asyncio.ensure_future(self._listen(connection.url))
            stack.push_async_callback(_cancel, listening)
            await self._take_jobs()

    async def _take_jobs(self) -> None:
        while not self._is_stopping:
            self._freed.clear()
            free = self._options.concurrency - len(self._running)
            try:
                jobs = await self._pop(free) if free else []
            except OrchestrationQueueError as error:
                log.warning("Worker %s could not take jobs: %s", self.name, error)
                jobs = []
            for job in jobs:
                self._start(job)
            if not jobs and not self._is_stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s() if free else None):
                        await self._freed.wait()

    async def _pop(self, free: int) -> list[QlessJob]:
        """Take jobs from the first queues first, or round-robin."""
        queues = self._queues
        share = free
        if self._options.order == "round-robin":
            queues = queues[self._turn :] + queues[: self._turn]
            self._turn = (self._turn + 1) % len(queues)
            share = -(-free // len(queues))
        taken: list[QlessJob] = []
        for queue in queues:
            if wanted := min(share, free - len(taken)):
                found = await self._pop_within_limit(queue, wanted)
                self._observer.taken(queue, len(found))
                taken += found
        return taken

    async def _pop_within_limit(self, queue: str, wanted: int) -> list[QlessJob]:
        limiter = self._limiters.get(queue)
        if limiter is None:
            return await self._client.pop(queue, wanted)
        jobs: list[QlessJob] = []
        if granted := await limiter.reserve(wanted):
            try:
                jobs = await self._client.pop(queue, granted)
            finally:
                await limiter.give_back(granted - len(jobs))
        return jobs

    def _pause_s(self) -> float:
        """How long to wait when no queue had a job that may start."""
        pauses = [limiter.pause_s() for limiter in self._limiters.values()]
        return min([seconds(self._options.interval), *pauses])

    def _start(self, job: QlessJob) -> None:
        if job.jid in self._running:
            self._running[job.jid].cancel()  # its lock was lost, and this worker took it again
        self._leases.hold(job)
        task = asyncio.ensure_future(self._run(job))
        self._running[job.jid] = task
        task.add_done_callback(partial(self._forget_task, job))

    def _forget_task(self, job: QlessJob, task: asyncio.Task[None]) -> None:
        if self._running.get(job.jid) is task:
            del self._running[job.jid]
            self._leases.drop(job.jid)
        self._freed.set()

    async def _run(self, job: QlessJob) -> None:
        started = time.monotonic()
        try:
            outcome = self._completion(job, await self._call(job))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            outcome = self._failure(job, RuntimeError("the handler was cancelled"))
        except BaseException as error:
            outcome = self._failure(job, error)
        # This worker may have lost the lock, and taken the job again.
        if self._running.get(job.jid) is asyncio.current_task():
            self._leases.drop(job.jid)
            self._observer.ended(job, _outcome(outcome), time.monotonic() - started)
            self._settler.settle(job.jid, outcome)

    def _completion(self, job: QlessJob, returned: Any) -> QlessCompletion | Call:
        if not isinstance(returned, QlessNext):
            return QlessCompletion(job.jid, job.queue, job.encoded)
        words = self._client._completion(job, returned.data, returned.queue, returned.delay, returned.depends)
        return command("complete", *words)

    def _failure(self, job: QlessJob, error: BaseException) -> Call:
        kind = error.kind if isinstance(error, SandboxedError) else type(error).__name__
        message = traceback_of(error) or reason_of(error)
        log.warning("Job %s of queue %s failed: %r", job.jid, job.queue, error)
        delay = self._options.retry_delay
        if delay is None or isinstance(error, UnrecoverableError):
            return command("fail", job.jid, self.name, f"{job.queue}-{kind}", message)
        return command("retry", job.jid, job.queue, self.name, seconds(delay), f"{job.queue}-{kind}", message)

    async def _call(self, job: QlessJob) -> Any:
        handler: Callable[[QlessJob], Any]
        if self._handler is None:
            handler = handler_of_class(job)
        else:
            handler = self._handler.handler(job.klass) if isinstance(self._handler, QlessRouter) else self._handler
        return await self._handlers.run(handler, job)

    def _lose(self, jid: str) -> None:
        if task := self._running.pop(jid, None):
            task.cancel()

    def _lost(self, job: QlessJob) -> None:
        self._observer.lost(job)
        self._lose(job.jid)

    async def _listen(self, url: ServerUrl) -> None:
        """Check locks as soon as the server reports them lost."""
        while True:
            try:
                async with AsyncQlessEvents(f"w:{self.name}", url=url) as events:
                    await events.start()
                    self._leases.check()  # earlier messages were missed
                    async for event in events:
                        if event.jid is not None:
                            self._leases.check(event.jid)
            except OrchestrationQueueError as error:
                log.warning("Worker %s receives no notifications of lost locks: %s", self.name, error)
                await asyncio.sleep(_PAUSE_S)

    async def _finish(self) -> None:
        """Wait for running jobs within the shutdown timeout; the locks of the rest expire."""
        tasks = set(self._running.values())
        if tasks:
            await asyncio.wait(tasks, timeout=seconds(self._options.shutdown_timeout))
        for jid in list(self._running):
            self._leases.drop(jid)
            self._lose(jid)


_OUTCOMES: dict[object, Outcome] = {"complete": "advanced", "fail": "failed", "retry": "retried"}


def _outcome(outcome: QlessCompletion | Call) -> Outcome:
    """Return what an outcome's command does to the job."""
    return "completed" if isinstance(outcome, QlessCompletion) else _OUTCOMES[outcome.args[0]]


async def _cancel(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
