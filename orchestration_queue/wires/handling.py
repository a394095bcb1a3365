"""Run the handlers of another wire's worker on its event loop, in a thread, or in a process, within middleware."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker.heartbeat import SHUTDOWN_TIMEOUT_S
from orchestration_queue.worker.interfaces import CallNext, check_middleware
from orchestration_queue.worker.sandbox import Sandboxed
from orchestration_queue.worker.sandbox.frames import Frame
from orchestration_queue.worker.sandbox.process import SandboxPool
from orchestration_queue.worker.sandbox.supervised import ChildProcess

__all__ = ["HandlerRunner", "JobForm", "Sandboxes", "WireMiddleware", "run_on_shutdown"]

J = TypeVar("J")

WireMiddleware: TypeAlias = Callable[[Any, CallNext], Awaitable[Any]]
"""Called with the job and a function that runs the rest of the chain; returns the job's result."""


@dataclass(frozen=True, slots=True)
class JobForm(Generic[J]):
    """How a wire's jobs, and their handlers' results, are sent to a process and back.

    Attributes:
        home: The module in which the process finds this as ``FORM``.
        id_of: Returns a job's id.
        dump: Returns a job as JSON.
        load: Returns a job from its JSON.
        dump_result: Returns a handler's result as JSON.
        load_result: Returns a result from its JSON.
    """

    home: str
    id_of: Callable[[J], str]
    dump: Callable[[J], Any]
    load: Callable[[Any], J]
    dump_result: Callable[[Any], Any]
    load_result: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Task:
    """A job as JSON has it, and the directory in which it runs."""

    job_id: str
    job: Any
    directory: str


class _Process(ChildProcess):
    """A process that runs handlers, one at a time."""

    jobs = 0
    memory_bytes = 0

    @classmethod
    async def start(cls, home: str) -> _Process:
        """Start one for the jobs of a form."""
        return await cls.launch("orchestration_queue.wires.sandbox_child", {"home": home})

    async def run(self, handler: Sandboxed, _lease: Lease, task: _Task, _timeout_s: float | None) -> Frame:
        """Run a job. Return how it ended.

        Raises:
            SandboxDiedError: The process died, or sent no message.
        """
        self.jobs += 1
        self._output.begin(f"Job {task.job_id}")
        try:
            address = handler.address.as_json
            self._channel.send({"address": address, "directory": task.directory, "job": task.job})
            frame = await self._channel.receive()
            self.memory_bytes = int(frame["memory_bytes"])
        except (EOFError, OSError):
            raise await self.death() from None
        return frame


class Sandboxes(Generic[J]):
    """A worker's sandbox processes."""

    def __init__(self, form: JobForm[J]) -> None:
        self._form = form
        self._pool = SandboxPool(partial(_Process.start, form.home))

    async def run(self, handler: Sandboxed, job: J) -> Any:
        """Run a job in a new and empty working directory, which is removed when the handler has ended.

        Raises:
            SandboxedError: The handler raised an error that has no more specific type here.
            SandboxDiedError: Its process died.
            asyncio.CancelledError: This worker no longer has the job; the process was stopped.
        """
        job_id = self._form.id_of(job)
        directory = await asyncio.to_thread(tempfile.mkdtemp, prefix="oq-job-")
        try:
            task = _Task(job_id, self._form.dump(job), directory)
            returned = await self._pool.run(handler, Lease(JobRecord(job_id, {}), ""), task, None)
        finally:
            # Shielded: a cancelled job must not leave its directory behind.
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))
        return self._form.load_result(returned)

    async def aclose(self) -> None:
        """End all processes."""
        await self._pool.aclose()


class HandlerRunner(Generic[J]):
    """Runs handlers until it is closed. A coroutine function runs on the event loop, a plain function in a thread.

    Args:
        form: How jobs are sent to processes.
        concurrency: How many handlers may run in threads.
        middleware: What to wrap around every run, outermost first.

    Raises:
        UsageError: ``middleware`` contains something that is not callable.
    """

    def __init__(self, form: JobForm[J], concurrency: int, middleware: Sequence[WireMiddleware]) -> None:
        check_middleware(middleware)
        self._form = form
        self._concurrency = concurrency
        self._middleware = tuple(middleware)

    async def __aenter__(self) -> None:
        self._executor = ThreadPoolExecutor(self._concurrency, thread_name_prefix="oq-wire")
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
        # run_in_executor() does not pass context variables to the thread.
        call = partial(copy_context().run, _call, handler, job)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _call(handler: Callable[[J], Any], job: J) -> Any:
    """Run a function so that all it raises can pass through a future, which a StopIteration cannot."""
    try:
        return handler(job)
    except StopIteration as error:
        raise RuntimeError(f"the handler raised {error!r}") from error


async def run_on_shutdown(act: Callable[[], Awaitable[object]]) -> None:
    """Run a coroutine on shutdown, unless the server does not respond."""
    with suppress(OrchestrationQueueError, TimeoutError):
        async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
            await act()
