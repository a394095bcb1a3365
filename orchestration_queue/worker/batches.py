"""Batches: several jobs are passed to one call of a handler, and each gets its own result."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from orchestration_queue.errors import UsageError
from orchestration_queue.options import Batch, seconds
from orchestration_queue.worker.active_job import JobInterrupt, find_interrupt
from orchestration_queue.worker.interfaces import Handler, Router
from orchestration_queue.worker.job import ActiveJob, AsyncActiveJob
from orchestration_queue.worker.sandbox import Sandboxed
from orchestration_queue.worker.threads import Threads

__all__ = ["BatchHandler", "BatchRouter", "Batches"]

_OF_ONE = (
    "The batch handler ended the run of one of its jobs (it slept, waited, called, or moved), which would end those of "
    "all; return what was raised in that job's place, as `asyncio.gather(..., return_exceptions=True)` does."
)

BatchHandler: TypeAlias = Callable[[list[Any]], Any]
"""A function of several :class:`ActiveJob`, or a coroutine function of several :class:`AsyncActiveJob`."""


class Batches:
    """Collects single jobs, and calls a handler of several.

    The handler returns a result per job, in order, or None if there are no results. An exception in place of a result
    fails that job; a raised exception fails all of them. Each job keeps its own lease, attempts and timeout.

    Args:
        handler: A coroutine function of a list of :class:`AsyncActiveJob`, which runs on the event loop, or a function
            of a list of :class:`ActiveJob`, which runs in a thread.
        batch: Maximum jobs per call, and how long to wait for more after the first.
        threads: Threads for a plain function.

    Raises:
        UsageError: The handler is sandboxed.
    """

    def __init__(self, handler: BatchHandler, batch: Batch, threads: Threads) -> None:
        if isinstance(handler, Sandboxed):
            raise UsageError(
                "A sandboxed handler takes one job at a time, so it can't take batches; "
                "drop WorkerOptions(batch=...), or `sandboxed`."
            )
        self._handle = _as_coroutine(handler, threads)
        self._batch = batch
        self._open: list[_Member] = []
        self._closing: asyncio.Handle | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def run(self, job: AsyncActiveJob) -> Any:
        """Join the open batch; return this job's result."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        member = job, answer
        self._open.append(member)
        if len(self._open) == self._batch.size:
            self._close()
        elif self._closing is None:
            self._closing = loop.call_later(seconds(self._batch.timeout), self._close)
        try:
            return await answer
        finally:
            # A job that ends before its batch is called, as by its timeout, must not be part of it.
            if member in self._open:
                self._open.remove(member)

    def _close(self) -> None:
        """Call the handler with the collected jobs."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        members, self._open = self._open, []
        if not members:
            return
        call = asyncio.ensure_future(self._call(members))
        # asyncio itself refers to tasks only weakly.
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        left = {answer for _, answer in members}

        # Once all jobs of the call have ended, as by their timeouts, no result is needed.
        def gave_up(answer: asyncio.Future[Any]) -> None:
            left.discard(answer)
            if not left:
                call.cancel()

        for answer in tuple(left):
            answer.add_done_callback(gave_up)

    async def _call(self, members: Sequence[_Member]) -> None:
        try:
            results = _check_results(await self._handle([job for job, _ in members]), len(members))
        except asyncio.CancelledError:
            # A CancelledError would look as if the jobs themselves were cancelled.
            results = [RuntimeError("the handler was cancelled")] * len(members)
        except BaseException as error:
            is_of_one = isinstance(find_interrupt(error), JobInterrupt) and len(members) > 1
            results = [UsageError(_OF_ONE) if is_of_one else error] * len(members)
        for (_, answer), result in zip(members, results, strict=True):
            if answer.done():
                continue
            if isinstance(result, BaseException):
                answer.set_exception(result)
            else:
                answer.set_result(result)


_Member: TypeAlias = tuple[AsyncActiveJob, asyncio.Future[Any]]


class BatchRouter:
    """Collects the jobs of each handler separately.

    Args:
        handler: One batch handler for all jobs, or a router to batch handlers.
        batch: As for :class:`Batches`.
        threads: As for :class:`Batches`.
    """

    def __init__(self, handler: BatchHandler | Router, batch: Batch, threads: Threads) -> None:
        self._find = handler.handler if isinstance(handler, Router) else lambda _name: handler
        self._batch = batch
        self._threads = threads
        self._batches: dict[BatchHandler, Batches] = {}

    def handler(self, name: str) -> Handler:
        """Return the handler for single jobs with this name."""
        handler = self._find(name)
        if handler not in self._batches:
            self._batches[handler] = Batches(handler, self._batch, self._threads)
        return self._batches[handler].run


def _as_coroutine(handler: BatchHandler, threads: Threads) -> Callable[[list[AsyncActiveJob]], Awaitable[Any]]:
    if inspect.iscoroutinefunction(handler):
        return handler

    async def in_thread(jobs: list[AsyncActiveJob]) -> Any:
        loop = asyncio.get_running_loop()
        return await threads.call(partial(handler, [ActiveJob(job, loop) for job in jobs])).ended

    return in_thread


def _check_results(results: Any, size: int) -> Sequence[Any]:
    if results is None:
        return [None] * size
    if not isinstance(results, Sequence) or isinstance(results, (str, bytes)):
        raise UsageError(
            f"The batch handler returned a {type(results).__name__}; return a list with a result per job, or None."
        )
    if len(results) != size:
        raise UsageError(
            f"The batch handler returned {len(results)} results for {size} jobs; return one per job, in their order."
        )
    return results
