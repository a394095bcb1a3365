"""Run one job's handler on the event loop, in a thread or in a process, with its timeout, to exactly one outcome."""

from __future__ import annotations

import asyncio
import inspect
import math
import random
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from orchestration_queue._logging import Lines, get_logger
from orchestration_queue.errors import RateLimitError
from orchestration_queue.options import wire_number
from orchestration_queue.protocol import outcome
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease, Settlement
from orchestration_queue.protocol.outcome import Strategy
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker.active_job import JobInterrupt, find_interrupt
from orchestration_queue.worker.interfaces import CallNext, Handler, Middleware, Router
from orchestration_queue.worker.job import ActiveJob, AsyncActiveJob
from orchestration_queue.worker.observability import about, bound_to
from orchestration_queue.worker.sandbox import Sandboxed
from orchestration_queue.worker.sandbox.process import SandboxPool, SandboxProcess
from orchestration_queue.worker.threads import Threads
from orchestration_queue.worker.turns import Turns

__all__ = ["Runner"]

log = get_logger("orchestration_queue.worker")

_NONE_RESERVED: Mapping[str, Handler] = MappingProxyType({})
_NAME_LENGTH = 100
_CLEANUP_S = 5.0
"""How long a coroutine may clean up after its timeout before its outcome is reported without it."""


class Runner:
    """Runs handlers, each to one outcome.

    If a handler must stop, because its timeout expired, its job was revoked, or the worker is leaving:

    * A coroutine is cancelled at its next await. If it swallows the cancellation, it keeps its slot until it ends. Its
      job's outcome is reported without it, five seconds after its timeout, and its lease is no longer renewed.
    * A function in a thread finds ``job.should_stop`` true. It can't be stopped, and keeps its slot until it ends.
    * A sandboxed handler's process is asked to end, then killed. Its slot is free as soon as it has ended.

    Args:
        handler: One handler for all jobs, or a router.
        keys: The queue's keys.
        connection: Connection that the running jobs use.
        threads: Threads for handlers that are plain functions.
        middleware: Wrapped around every run, outermost first. Waiting there doesn't count towards a job's timeout.
        around: Returns what to wrap around a job's run outside of all that, as :meth:`Limits.around` does.
        strategies: Custom backoffs, by the name that jobs use for them.
        rate_limit_delay: How long to pause after a :class:`RateLimitError` without a delay.
        on_rate_limit: Called with the pause in milliseconds, on the event loop.
        default_options: Returns the options of jobs with a name that were added without their own.
        reserved: Handlers by reserved name, which take precedence.
        has_steps: Whether jobs can have durable steps.
    """

    def __init__(
        self,
        handler: Handler | Router,
        keys: QueueKeys,
        connection: AsyncConnection,
        threads: Threads,
        middleware: Sequence[Middleware] = (),
        *,
        around: Callable[[JobRecord], Sequence[Middleware]] | None = None,
        strategies: Mapping[str, Strategy] | None = None,
        rate_limit_delay: timedelta = timedelta(seconds=1),
        on_rate_limit: Callable[[int], object] | None = None,
        default_options: Callable[[str], Mapping[str, Any]] | None = None,
        reserved: Mapping[str, Handler] = _NONE_RESERVED,
        has_steps: bool = True,
    ) -> None:
        self._find = handler.handler if isinstance(handler, Router) else lambda _name: handler
        self._reserved = reserved
        self._has_steps = has_steps
        self._default_options = default_options
        self._keys = keys
        self._connection = connection
        self._threads = threads
        self._middleware = tuple(middleware)
        self._around = around
        self._strategies = dict(strategies or {})
        self._rate_limit_delay = rate_limit_delay
        self._on_rate_limit = on_rate_limit or (lambda _delay_ms: None)
        self.on_step: Callable[[str], object] = lambda _name: None
        """Called with the job's name when a durable step's outcome was stored."""
        self.emit_step_events = False
        """Whether the server emits an event then, too."""
        self._last_handler: Handler | None = None
        self._is_coroutine = False
        self._sandboxes = SandboxPool(SandboxProcess.start)

    async def run(self, lease: Lease, report: Callable[[Settlement], None], given_up: Container[Lease]) -> None:
        """Run the job and report its outcome once its handler has ended.

        If a handler outlives its timeout, its outcome is reported at once, but the slot is taken until it ends.

        Args:
            lease: The job's lease.
            report: Called with the outcome.
            given_up: The leases of jobs whose tasks the worker has cancelled. A task cannot know: before Python 3.13,
                ``cancelling()`` stays at 1 after a task group has failed.

        Raises:
            asyncio.CancelledError: The worker gave the job up, so it has no outcome.
        """
        if self._default_options is not None:
            lease.record.fill_options(self._default_options(lease.record.name))
        with bound_to(self._keys.queue, lease.record):
            job = AsyncActiveJob(lease.record, self._keys, self._connection, has_steps=self._has_steps)
            job.on_step, job.emit_step_events = self.on_step, self.emit_step_events
            attempt = _Attempt(lease, job)
            settlement = await self._run_to_outcome(attempt, given_up)
            if lease in given_up:
                # The handler swallowed the worker's cancellation. Its result no longer counts.
                raise asyncio.CancelledError
            report(settlement)
            if attempt.leftover is not None:
                await asyncio.wait({attempt.leftover})

    async def aclose(self) -> None:
        """End all sandbox processes, and kill those that still run a job."""
        await self._sandboxes.aclose()

    async def _run_to_outcome(self, attempt: _Attempt, given_up: Container[Lease]) -> Settlement:
        lease, job = attempt.lease, attempt.job
        if (problem := lease.record.problem) is not None:
            log.error("Job %r of queue %s is malformed and fails: %s", lease.job_id, self._keys.queue, problem)
            return outcome.malformed(lease, problem)
        try:
            return outcome.completed(lease, await self._through_middleware(attempt))
        except JobInterrupt as interrupt:
            return self._settle_interrupt(attempt, interrupt)
        except asyncio.CancelledError:
            job.request_stop()
            if lease in given_up:
                raise
            # The handler raised it by itself.
            return self._build_failure(attempt, RuntimeError("the handler was cancelled"))
        except RateLimitError as error:
            failure = outcome.rate_limited(lease, error, self._rate_limit_delay)
            self._on_rate_limit(failure.backoff_ms)
            return failure
        except BaseException as error:
            return self._build_failure(attempt, outcome.without_exit(error))

    def _settle_interrupt(self, attempt: _Attempt, interrupt: JobInterrupt) -> Settlement:
        try:
            return interrupt.settle(attempt.lease)
        except Exception as error:
            return self._build_failure(attempt, error)

    def _build_failure(self, attempt: _Attempt, error: BaseException) -> Settlement:
        failure = outcome.failed(
            attempt.lease, error, _chance(), strategies=self._strategies, is_discarded=attempt.job.is_discarded
        )
        log.warning(
            "Attempt %d of job %r (%r) of queue %s failed: %s\n%s",
            attempt.job.attempt,
            attempt.lease.job_id,
            attempt.lease.record.name[:_NAME_LENGTH],
            self._keys.queue,
            failure.reason,
            Lines(failure.traceback),
            extra=about(
                self._keys.queue,
                attempt.lease.record,
                kind=failure.kind,
                error=failure.error,
                reason=failure.reason,
                traceback=failure.traceback,
            ),
        )
        return failure

    def _through_middleware(self, attempt: _Attempt) -> Awaitable[Any]:
        chain = self._middleware
        if self._around is not None and (outer := self._around(attempt.lease.record)):
            chain = (*outer, *chain)
        call: CallNext = partial(self._handle, attempt)
        for middleware in reversed(chain):
            call = partial(middleware, attempt.job, call)
        return call()

    async def _handle(self, attempt: _Attempt) -> Any:
        try:
            return await self._call_handler(attempt)
        except BaseExceptionGroup as group:
            if (interrupt := find_interrupt(group)) is not group:
                raise interrupt from None
            raise  # with its cause

    async def _call_handler(self, attempt: _Attempt) -> Any:
        name = attempt.lease.record.name
        handler = self._reserved.get(name) or self._find(name)
        timeout_s = wire_number(attempt.lease.record.options.get("timeout")) / 1000 or None
        if isinstance(handler, Sandboxed):
            return await self._sandboxes.run(handler, attempt.lease, attempt.job, timeout_s)
        if not self._is_coroutine_function(handler):
            return await self._in_thread(handler, attempt, timeout_s)
        if timeout_s is None:
            return await handler(attempt.job)
        return await self._on_loop(handler, attempt, timeout_s)

    def _is_coroutine_function(self, handler: Handler) -> bool:
        if handler is not self._last_handler:  # asking takes longer than most of what a job costs here
            self._last_handler, self._is_coroutine = handler, _is_coroutine_function(handler)
        return self._is_coroutine

    async def _on_loop(self, handler: Handler, attempt: _Attempt, timeout_s: float) -> Any:
        turns = Turns(time.monotonic() + timeout_s, partial(self._report_blocked, handler, attempt))
        # In its own task, so that a handler that swallows its cancellation can't delay the job's outcome.
        task = asyncio.ensure_future(_run_coroutine(lambda job: turns.watch(handler(job)), attempt.job))
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
            if done:
                result = task.result()
                if turns.missed_deadline:
                    raise outcome.JobTimeoutError(timeout_s)
                return result
        except asyncio.CancelledError:
            if not task.done():
                attempt.job.request_stop()
                # No time limit: the slot is taken until the handler has ended, and the worker's drain is the limit.
                task.cancel()
                await asyncio.wait({task})
            raise
        attempt.job.request_stop()
        task.cancel()
        await asyncio.wait({task}, timeout=_CLEANUP_S)
        attempt.leave(task)
        raise outcome.JobTimeoutError(timeout_s)

    def _report_blocked(self, handler: Handler, attempt: _Attempt, blocked_s: float) -> None:
        log.warning(
            "Job %r (%r) of queue %s: %s blocked the event loop for %.1f s, in which no timeout could stop it and "
            "no other coroutine ran; await what takes long, or make it a plain function or sandboxed",
            attempt.lease.job_id,
            attempt.lease.record.name[:_NAME_LENGTH],
            self._keys.queue,
            getattr(handler, "__qualname__", handler),
            blocked_s,
            extra=about(self._keys.queue, attempt.lease.record, blocked_s=round(blocked_s, 3)),
        )

    async def _in_thread(self, handler: Handler, attempt: _Attempt, timeout_s: float | None) -> Any:
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        ended_at = deadline

        def call() -> Any:
            nonlocal ended_at
            try:
                return handler(job)
            finally:
                ended_at = time.monotonic()

        job = ActiveJob(attempt.job, asyncio.get_running_loop())
        # The thread does not have the context variables of this task by itself.
        thread = self._threads.call(partial(copy_context().run, call))
        try:
            if timeout_s is None:
                return await thread.ended
            done, _ = await asyncio.wait({thread.ended}, timeout=timeout_s)
        except asyncio.CancelledError:
            if thread.ended.done() and not thread.ended.cancelled():
                raise  # by the function itself
            attempt.job.request_stop()
            # A thread cannot be cancelled, and keeps its slot until the function returns.
            await asyncio.wait({thread.outlive_waiter()})
            raise
        if done:
            result = thread.ended.result()
            if ended_at > deadline:  # a blocked event loop noticed it late
                raise outcome.JobTimeoutError(timeout_s)
            return result
        attempt.job.request_stop()
        attempt.leave(thread.ended)
        raise outcome.JobTimeoutError(timeout_s)


class _Attempt:
    """One attempt of a job."""

    __slots__ = ("job", "lease", "leftover")

    def __init__(self, lease: Lease, job: AsyncActiveJob) -> None:
        self.lease = lease
        self.job = job
        self.leftover: asyncio.Future[Any] | None = None
        """The handler, if it continues after its outcome is known."""

    def leave(self, handler: asyncio.Future[Any]) -> None:
        """Continue without this handler. How it ends is ignored."""
        self.leftover = handler
        # Reading the exception keeps asyncio from logging it as never retrieved.
        handler.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


def _is_coroutine_function(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


async def _run_coroutine(handler: Handler, job: AsyncActiveJob) -> Any:
    """Run a coroutine so that an exit in it ends only its own task."""
    try:
        return await handler(job)
    # asyncio re-raises these two out of the event loop itself, which would end the worker.
    except (SystemExit, KeyboardInterrupt) as exit_:
        raise outcome.without_exit(exit_) from None


def _chance() -> float:
    return random.random()  # noqa: S311  jitter, not a secret
