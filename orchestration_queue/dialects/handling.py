"""Run the handlers of a dialect's worker on its event loop, in a thread, or in a process, within middleware."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from orchestration_queue.dialects.sandbox import JobForm, Sandboxes
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.worker.interfaces import CallNext, check_middleware
from orchestration_queue.worker.sandbox import Sandboxed

__all__ = ["FAREWELL_S", "DialectMiddleware", "HandlerRunner", "farewell"]

J = TypeVar("J")

DialectMiddleware: TypeAlias = Callable[[Any, CallNext], Awaitable[Any]]
"""Called with a dialect's job and a function that runs the rest of the chain; returns the job's result."""

FAREWELL_S = 2.0
"""How long shutdown waits for an unresponsive server."""


class HandlerRunner(Generic[J]):
    """Runs handlers until it is closed. A coroutine function runs on the event loop, a plain function in a thread.

    Args:
        form: How jobs are sent to processes.
        concurrency: How many handlers may run in threads.
        middleware: What to wrap around every run, outermost first.

    Raises:
        UsageError: ``middleware`` contains something that is not callable.
    """

    def __init__(self, form: JobForm[J], concurrency: int, middleware: Sequence[DialectMiddleware]) -> None:
        check_middleware(middleware)
        self._form = form
        self._concurrency = concurrency
        self._middleware = tuple(middleware)

    async def __aenter__(self) -> None:
        self._executor = ThreadPoolExecutor(self._concurrency, thread_name_prefix="oq-dialect")
        self._sandboxes = Sandboxes(self._form)

    async def __aexit__(self, *_: object) -> None:
        await self._sandboxes.aclose()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def run(self, handler: Callable[[J], Any], job: J) -> Any:
        """Run a handler; return what it, or the middleware around it, returns, and raise what they raise."""
        if not self._middleware:
            return await self._run(handler, job)
        call: CallNext = partial(self._run, handler, job)
        for middleware in reversed(self._middleware):
            call = partial(middleware, job, call)
        return await call()

    async def _run(self, handler: Callable[[J], Any], job: J) -> Any:
        if isinstance(handler, Sandboxed):
            return await self._sandboxes.run(handler, job)
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None)):  # noqa: B004
            return await handler(job)
        call = partial(copy_context().run, _contained, handler, job)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _contained(handler: Callable[[J], Any], job: J) -> Any:
    """Run a function so that all it raises can pass through a future, which a StopIteration cannot."""
    try:
        return handler(job)
    except StopIteration as error:
        raise RuntimeError(f"the handler raised {error!r}") from error


async def farewell(act: Callable[[], Awaitable[object]]) -> None:
    """Run a coroutine on shutdown, unless the server does not respond."""
    with suppress(OrchestrationQueueError, TimeoutError):
        async with asyncio.timeout(FAREWELL_S):
            await act()
