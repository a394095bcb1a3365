"""Running one job's handler: on the loop or in a thread, within its time, to exactly one outcome."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol, TypeAlias, runtime_checkable

from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.working import Lease, Settlement
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker import outcome
from orchestration_queue.worker.job import ActiveJob, AsyncActiveJob

__all__ = ["Handler", "Router", "Runner"]

Handler: TypeAlias = Callable[[Any], Any]
"""A function of one :class:`ActiveJob`, or a coroutine function of one :class:`AsyncActiveJob`."""


@runtime_checkable
class Router(Protocol):
    """Finds the handler for a kind of job; :class:`orchestration_queue.tasks.Tasks` is one."""

    def handler(self, name: str) -> Handler:
        """The handler for jobs of this name.

        Raises:
            UnrecoverableError: There is none.
        """


class Runner:
    """Runs handlers, each to one outcome.

    Args:
        handler: One handler for all jobs, or a router.
        keys: The queue's keys.
        connection: What the running jobs speak through.
        executor: Threads for handlers that are plain functions.
    """

    def __init__(
        self, handler: Handler | Router, keys: QueueKeys, connection: AsyncConnection, executor: Executor
    ) -> None:
        self._find = handler.handler if isinstance(handler, Router) else lambda _name: handler
        self._keys = keys
        self._connection = connection
        self._executor = executor

    async def run(self, lease: Lease, tell: Callable[[Settlement], None]) -> None:
        """Run the job and tell its outcome; returns when its handler has really ended.

        These are two moments for a plain function that outlives its time: the outcome is told at once, and the
        place stays taken until the thread comes back.
        """
        job = AsyncActiveJob(lease.record, self._keys, self._connection)
        timeout_ms = lease.record.options.get("timeout")
        try:
            handler = self._find(lease.record.name)
            running = asyncio.ensure_future(self._start(handler, job))
        except UnrecoverableError as error:
            tell(outcome.failed(lease, error, 0.0))
            return
        try:
            done, _ = await asyncio.wait({running}, timeout=timeout_ms / 1000 if timeout_ms else None)
            if not done:
                job.request_stop()
                tell(outcome.failed(lease, TimeoutError("Job timeout exceeded"), random.random()))  # noqa: S311
                await self._end(running)
                return
        except asyncio.CancelledError:
            job.request_stop()
            await self._end(running)
            raise
        tell(self._outcome_of(lease, running))

    @staticmethod
    def _outcome_of(lease: Lease, running: asyncio.Future[Any]) -> Settlement:
        if running.cancelled():
            return outcome.failed(lease, RuntimeError("the handler was cancelled"), 0.0)
        error = running.exception()
        if error is None:
            return outcome.completed(lease, running.result())
        return outcome.failed(lease, error, random.random())  # noqa: S311  jitter, not a secret

    @staticmethod
    async def _end(running: asyncio.Future[Any]) -> None:
        """Cancel a coroutine; wait for a thread, which nothing can stop. Its late outcome is of no use."""
        running.cancel()
        await asyncio.wait({running})

    async def _start(self, handler: Handler, job: AsyncActiveJob) -> Any:
        try:
            if inspect.iscoroutinefunction(handler):
                return await handler(job)
            return await self._in_thread(handler, job)
        except (SystemExit, KeyboardInterrupt) as exit_:
            # Passed on, it would end the worker together with this job.
            raise RuntimeError(f"the handler called exit ({exit_!r})") from exit_

    async def _in_thread(self, handler: Handler, job: AsyncActiveJob) -> Any:
        loop = asyncio.get_running_loop()
        thread = loop.run_in_executor(self._executor, handler, ActiveJob(job, loop))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.wait({thread})
            raise
