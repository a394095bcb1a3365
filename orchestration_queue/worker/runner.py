"""Running one job's handler: on the loop or in a thread, within its time, to exactly one outcome."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol, TypeAlias, runtime_checkable

from orchestration_queue.options import wire_number
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease, Settlement
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

        Raises:
            asyncio.CancelledError: The worker gave the job up; there is no outcome to tell.
        """
        job = AsyncActiveJob(lease.record, self._keys, self._connection)
        try:
            handler = self._find(lease.record.name)
            run = self._on_loop if inspect.iscoroutinefunction(handler) else self._in_thread
            settlement = outcome.completed(lease, await run(handler, job, _timeout_s(lease)))
        except _OvertimeError as overtime:
            job.request_stop()
            tell(outcome.failed(lease, TimeoutError("Job timeout exceeded"), _chance()))
            await overtime.until_ended()
            return
        except asyncio.CancelledError:
            job.request_stop()
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            settlement = outcome.failed(lease, RuntimeError("the handler was cancelled"), _chance())
        except (SystemExit, KeyboardInterrupt) as exit_:
            # Passed on, it would end the worker together with this job.
            settlement = outcome.failed(lease, RuntimeError(f"the handler called exit ({exit_!r})"), _chance())
        except BaseException as error:
            settlement = outcome.failed(lease, error, _chance())
        tell(settlement)

    @staticmethod
    async def _on_loop(handler: Handler, job: AsyncActiveJob, timeout_s: float | None) -> Any:
        if timeout_s is None:
            return await handler(job)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await handler(job)
        except TimeoutError:
            if limit.expired():
                raise _OvertimeError from None
            raise

    async def _in_thread(self, handler: Handler, job: AsyncActiveJob, timeout_s: float | None) -> Any:
        loop = asyncio.get_running_loop()
        thread = loop.run_in_executor(self._executor, handler, ActiveJob(job, loop))
        try:
            done, _ = await asyncio.wait({thread}, timeout=timeout_s)
        except asyncio.CancelledError:
            job.request_stop()
            await asyncio.wait({thread})
            raise
        if not done:
            raise _OvertimeError(thread)
        return thread.result()


class _OvertimeError(Exception):
    """The handler is over its time, and its thread, if it has one, has not come back."""

    def __init__(self, thread: asyncio.Future[Any] | None = None) -> None:
        self._thread = thread

    async def until_ended(self) -> None:
        """Wait for the thread, which nothing can stop. Its late outcome is of no use."""
        if self._thread is not None:
            await asyncio.wait({self._thread})


def _timeout_s(lease: Lease) -> float | None:
    return wire_number(lease.record.options.get("timeout")) / 1000 or None


def _chance() -> float:
    return random.random()  # noqa: S311  jitter, not a secret
