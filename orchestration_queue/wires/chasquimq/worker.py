"""The worker of a ChasquiMQ queue."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import UsageError
from orchestration_queue.options import seconds
from orchestration_queue.server import AsyncConnection, ServerUrl, parse_url
from orchestration_queue.wires.chasquimq.jobs import FORM, ChasquiJob
from orchestration_queue.wires.chasquimq.keys import LIBRARY, ChasquiKeys
from orchestration_queue.wires.chasquimq.maintenance import ChasquiLeaseRenewer, Promoter, Scheduler
from orchestration_queue.wires.chasquimq.options import ChasquiObserver, ChasquiWorkerOptions
from orchestration_queue.wires.chasquimq.reader import ChasquiDelivery, Entry, Reader, Rejection, check_entry
from orchestration_queue.wires.chasquimq.settling import ChasquiSettler, Outbox, build_event
from orchestration_queue.wires.handling import HandlerRunner, WireMiddleware, run_on_shutdown
from orchestration_queue.worker.heartbeat import SHUTDOWN_TIMEOUT_S
from orchestration_queue.worker.signals import stopping_on_signals

__all__ = ["ChasquiHandler", "ChasquiRouter", "ChasquiWorker"]

log = get_logger("orchestration_queue.chasquimq")

ChasquiHandler: TypeAlias = Callable[[ChasquiJob], Any]
"""A function or coroutine function of one :class:`ChasquiJob`."""


@runtime_checkable
class ChasquiRouter(Protocol):
    """Finds the handler for a job's name; :class:`orchestration_queue.tasks.Tasks` is one."""

    def handler(self, name: str) -> Callable[[Any], Any]:
        """Return the handler for jobs with this name; raise UnrecoverableError for an unknown name."""


class ChasquiWorker:
    """Takes jobs of a ChasquiMQ queue and runs them, beside workers of the original.

    A handler returns the job's result, or raises to fail the attempt; :class:`UnrecoverableError` fails the job
    immediately. A coroutine function runs on the event loop, a plain function in a thread, and a
    :func:`~orchestration_queue.sandboxed` one in a separate process, with a new working directory per job. Delivery is
    at least once: a job runs again if its worker dies or can't renew its lease. Leases are renewed while handlers run.

    Args:
        queue: The queue's name.
        handler: One handler for all jobs, or a router by name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        options: Concurrency, lease and limits.
        observer: Called for each event of the worker, for metrics.
        middleware: What to wrap around every run of a handler, outermost first: coroutine functions of the job and of a
            function that runs the rest, on the worker's event loop. They return the result, or raise to fail the
            attempt.

    Raises:
        UsageError: An argument is invalid.

    Attributes:
        id: This worker's id, unique in its queue.

    Examples:
        >>> async def greet(job: ChasquiJob) -> str:
        ...     return f"Hello, {job.data['name']}"
        >>> asyncio.run(ChasquiWorker("greetings", greet).run())  # doctest: +SKIP
    """

    def __init__(
        self,
        queue: str,
        handler: ChasquiHandler | ChasquiRouter,
        *,
        url: str | ServerUrl | None = None,
        options: ChasquiWorkerOptions | None = None,
        observer: ChasquiObserver | None = None,
        middleware: Sequence[WireMiddleware] = (),
    ) -> None:
        if not isinstance(handler, ChasquiRouter) and not callable(handler):
            raise UsageError(f"`handler` must be a function of one job or a router, got {handler!r}; pass a function.")
        if options is not None and not isinstance(options, ChasquiWorkerOptions):
            raise UsageError(f"`options` must be ChasquiWorkerOptions, got {options!r}; pass ChasquiWorkerOptions().")
        if observer is not None and not isinstance(observer, ChasquiObserver):
            raise UsageError(f"`observer` must be a ChasquiObserver, got {observer!r}; derive yours from it.")
        self._observer = observer or ChasquiObserver()
        self.id = f"c-{uuid.uuid4()}"
        self._keys = ChasquiKeys(queue)
        self._lifespan = getattr(handler, "lifespan", None)
        self._find = handler.handler if isinstance(handler, ChasquiRouter) else lambda _name: handler
        self._url = url if url is None else parse_url(url)
        self._options = options or ChasquiWorkerOptions()
        self._handlers = HandlerRunner(FORM, self._options.concurrency, middleware)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = False
        self._reader: Reader | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def running(self) -> int:
        """How many jobs it is running."""
        return len(self._running)

    def stop(self) -> None:
        """Take no new jobs, finish the running ones within ``options.shutdown_timeout``, and return from `run`.

        Thread-safe.
        """
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)
        else:
            self._is_stopping = True

    def _stop(self) -> None:
        self._is_stopping = True
        self._freed.set()
        if self._reader is not None:
            self._waking = asyncio.ensure_future(self._reader.wake())

    async def run(self) -> None:
        """Serve until :meth:`stop` is called.

        On the main thread, SIGTERM and SIGINT also stop it: each unless the program handles or ignores it.

        Raises:
            TransportError: The server is unreachable at the start. Later outages are survived.
        """
        self._loop = asyncio.get_running_loop()
        self._freed = asyncio.Event()
        with stopping_on_signals(self._stop):
            async with AsyncExitStack() as stack:
                await self._work(stack, self._loop)

    async def _work(self, stack: AsyncExitStack, loop: asyncio.AbstractEventLoop) -> None:
        """Work until it is time to leave; the stack holds what must be done then."""
        options, keys = self._options, self._keys
        calls = await AsyncConnection.open(self._url, libraries=(LIBRARY,))
        stack.push_async_callback(calls.aclose)
        waits = await calls.duplicate()
        stack.push_async_callback(waits.aclose)
        if self._lifespan is not None:
            await stack.enter_async_context(self._lifespan())
        reader = Reader(calls, waits, keys, self.id, options)
        await reader.create_group()
        await stack.enter_async_context(self._handlers)
        self._lost: set[str] = set()
        self._leases = ChasquiLeaseRenewer(
            calls.url,
            keys,
            options.group,
            self.id,
            seconds(options.lease),
            lambda lost: loop.call_soon_threadsafe(self._lose, lost),
        )
        # In a thread: it waits for the renewals in progress, which the event loop must not.
        stack.push_async_callback(asyncio.to_thread, self._leases.close)
        self._outbox = Outbox(calls, keys, options.group, self._leases.drop)
        self._settler = ChasquiSettler(keys, options, self._outbox, self._observer)
        stack.push_async_callback(run_on_shutdown, reader.leave)
        await self._serve(stack, calls, reader)

    async def _serve(self, stack: AsyncExitStack, calls: AsyncConnection, reader: Reader) -> None:
        background = [asyncio.ensure_future(self._outbox.run()), asyncio.ensure_future(reader.watch())]
        stack.push_async_callback(run_on_shutdown, self._outbox.flush)
        if self._options.run_promoter:
            promoter = Promoter(calls, self._keys, self.id, self._options, self._observer)
            stack.push_async_callback(run_on_shutdown, promoter.release)
            background.append(asyncio.ensure_future(promoter.run()))
        if self._options.run_schedulers:
            scheduler = Scheduler(calls, self._keys, f"s-{uuid.uuid4()}", self._options)
            stack.push_async_callback(run_on_shutdown, scheduler.release)
            background.append(asyncio.ensure_future(scheduler.run()))
        stack.push_async_callback(_cancel, background)
        stack.push_async_callback(self._finish)
        log.info("Worker %s takes jobs of queue %s, %d at a time", self.id, self._keys.queue, self._options.concurrency)
        self._reader = reader
        reading = asyncio.ensure_future(self._read(reader))
        # The others only end with an error, which is raised.
        done, _ = await asyncio.wait({reading, *background}, return_when=asyncio.FIRST_COMPLETED)
        self._stop()
        await reading
        for task in done:
            task.result()

    async def _read(self, reader: Reader) -> None:
        had_jobs = False
        while not self._is_stopping:
            self._freed.clear()
            free = self._options.concurrency - len(self._running)
            if free == 0:
                await self._freed.wait()
                continue
            entries = await reader.read(free)
            self._observer.read(len(entries), sum(entry.deliveries > 0 for entry in entries))
            if had_jobs and reader.is_drained and self._options.emit_events:
                self._outbox.report(build_event("drained", ""))
            had_jobs = bool(entries) or (had_jobs and not reader.is_drained)
            for entry in entries:
                self._take(entry)

    def _take(self, entry: Entry) -> None:
        if entry.id in self._leases:
            return  # it runs here: its lease was renewed late
        taken = check_entry(self._keys.queue, entry.id, entry.flat, entry.deliveries, self._options)
        self._leases.hold(entry.id)
        if isinstance(taken, Rejection):
            self._settler.reject(taken)
            return
        task = self._running[entry.id] = asyncio.ensure_future(self._run(taken))
        task.add_done_callback(partial(self._ran, entry.id))

    def _ran(self, entry_id: str, task: asyncio.Task[None]) -> None:
        if self._running.get(entry_id) is task:
            del self._running[entry_id]
            self._lost.discard(entry_id)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("Worker %s could not settle a job", self.id, exc_info=error)

    async def _run(self, delivery: ChasquiDelivery) -> None:
        self._settler.start(delivery)
        started = time.perf_counter_ns()
        try:
            result = await self._handlers.run(self._find(delivery.job.name), delivery.job)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and task.cancelling():
                # Given up on shutdown: its lease expires, and another worker takes it over.
                self._leases.drop(delivery.entry_id)
                raise
            self._fail(delivery, RuntimeError("the handler was cancelled"), started)
        except BaseException as error:
            self._fail(delivery, error, started)
        else:
            self._settler.complete(delivery, result, _microseconds(started))

    def _fail(self, delivery: ChasquiDelivery, error: BaseException, started: int) -> None:
        if delivery.entry_id in self._lost:
            log.warning("Job %s failed after another worker took it over: %s", delivery.job.id, error)
            self._leases.drop(delivery.entry_id)
            return
        self._settler.fail(delivery, error, _microseconds(started), random.random())  # noqa: S311  jitter

    def _lose(self, entry_ids: list[str]) -> None:
        for entry_id in entry_ids:
            if entry_id in self._running:  # a job that has ended may be settled already, which looks the same from here
                log.warning("Queue %s: another worker took over entry %s", self._keys.queue, entry_id)
                self._lost.add(entry_id)

    async def _finish(self) -> None:
        """Wait for running jobs within the shutdown timeout, then cancel the rest."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=seconds(self._options.shutdown_timeout))
        for task in self._running.values():
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=SHUTDOWN_TIMEOUT_S)


def _microseconds(started: int) -> int:
    return (time.perf_counter_ns() - started) // 1000


async def _cancel(tasks: Sequence[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
