"""The part of a running job that has durable steps."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestration_queue.errors import TransportError, UsageError
from orchestration_queue.options import Duration, StepOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations import steps
from orchestration_queue.protocol.operations.steps import JobStep, StepKind, StoredOutcome
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import Pauses, now_ms
from orchestration_queue.worker.active_job import BaseActiveJob, RunState, duration_ms, moment_ms
from orchestration_queue.worker.steps import StepBook, StepRun, call_step

__all__ = ["DurableJob"]

_STORE_FOR_S = 300.0
"""How long a step's outcome waits for an unreachable server, while the job is still this worker's."""


class DurableJob(BaseActiveJob):
    """The running job, with its durable steps.

    Args:
        record: The job when it started.
        keys: Its queue.
        connection: Connection for calls.
        has_steps: Whether it can have steps. Each subscription runs a broadcast's jobs, and would read the others'.
    """

    def __init__(
        self, record: JobRecord, keys: QueueKeys, connection: AsyncConnection, *, has_steps: bool = True
    ) -> None:
        super().__init__(RunState(record, keys))
        self._keys = keys
        self._connection = connection
        self._has_steps = has_steps

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        options: StepOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once per job: store its result with the job, and return the stored one in later attempts.

        The result is stored under the job's lease before this returns, so a worker that lost the job stores nothing.
        The function runs again if the worker dies before that; make it idempotent. Steps of one job may run
        concurrently, as in :func:`asyncio.gather`. What a function raises is not stored, unless ``store_errors`` of the
        options names it, and its name can be used again.

        Args:
            name: Identifies the result; each step of a job needs its own.
            function: A coroutine function, or another one, which runs on the event loop.
            args: Its arguments.
            options: How it runs: its options, or a dict of them.
            kwargs: Its arguments by name.

        Returns:
            What the function returned, as JSON values, in every attempt: a tuple is a list, a model is a dict.

        Raises:
            UsageError: The name is invalid, or used already in this attempt; or the job is a broadcast's.
            InvalidOptionError: An option is invalid.
            UnrecoverableError: The result is not JSON, or larger than 1 MiB. It fails the job for good.
            LeaseLostError: The job is no longer this worker's; the result was not stored.
            StateError: The job has 10,000 steps; the result was not stored.
            TransportError: The server was unreachable, for five minutes if the result waited to be stored.
        """
        run, found = await self._open_step(name, options)
        if found is not None:
            return run.replay(found)
        while True:
            run.begin()
            try:
                result = await call_step(name, function, args, kwargs, run.timeout_s)
            except Exception as error:
                pause_s = await run.failed(error)
            else:
                return await run.returned(result)
            await asyncio.sleep(pause_s)

    async def sleep(self, name: str, until: datetime | Duration) -> None:
        """Continue at another time: end this run, and return once that time has passed.

        The job runs again then, from the beginning of its handler, on any worker; it keeps its attempts, and occupies
        no slot meanwhile. What the first attempt asked for counts. The run ends with an exception that is not an
        :class:`Exception`.

        Args:
            name: Identifies the sleep among the job's steps.
            until: When: an aware datetime, or a duration from now.

        Raises:
            UsageError: The name or the time is invalid, or the name was used already; or the job is a broadcast's.
            LeaseLostError: The job is no longer this worker's.
        """
        await self._book.sleep(name, moment_ms(until))

    async def wait_for(self, name: str, *, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109
        """Wait for a signal: end this run, and return the signal's data once it has arrived.

        The job runs again then, as after :meth:`sleep`. A signal takes effect only while the job is suspended, so that
        its sender is told if it comes too early; signals that arrive during another wait are kept for this one.

        Args:
            name: The signal's name, which also identifies the wait among the job's steps.
            timeout: How long to wait, from the first attempt on: a duration, or seconds; None waits forever.

        Raises:
            TimeoutError: No signal of this name arrived in time. Later attempts raise it, too.
            UsageError: The name or the timeout is invalid, or the name was used already; or the job is a broadcast's.
            LeaseLostError: The job is no longer this worker's.
        """
        return await self._book.wait(name, 0 if timeout is None else duration_ms("timeout", timeout))

    async def _open_step(
        self, name: str, options: StepOptions | Mapping[str, Any] | None
    ) -> tuple[StepRun, StoredOutcome | None]:
        run = StepRun(self._book, name, options)
        return run, await run.find()

    @functools.cached_property
    def _book(self) -> StepBook:
        self._check_steps()
        return StepBook(self)

    def _check_steps(self) -> None:
        if not self._has_steps:
            raise UsageError(
                f"Job {self.id!r} of broadcast {self.queue!r} can't have steps: each subscription runs it; "
                "add a job to a queue, and give that one steps."
            )

    async def _read_steps(self) -> list[JobStep]:
        return await self._connection.follow(steps.read_steps(self._keys, self.id))

    async def _read_step_results(self, names: Sequence[str]) -> list[str]:
        return await self._connection.look(steps.read_results(self._keys, self.id, names))

    async def _store_step(
        self, name: str, kind: StepKind, duration_ms: int = 0, until_ms: int = 0, result: str = ""
    ) -> StoredOutcome:
        """Store how a step ended. In an outage, try again while the worker keeps the job: its work is done."""
        self._check_steps()
        storing = steps.store_step(
            self._keys,
            Lease(self.record, ""),
            name,
            StepKind(kind),
            now_ms=now_ms(),
            duration_ms=duration_ms,
            until_ms=until_ms,
            result=result,
        )
        pauses = Pauses()
        while True:
            try:
                return await self._connection.run(storing, repeatable=True)
            except TransportError:
                if self.should_stop or pauses.waited_s > _STORE_FOR_S:
                    raise
            await asyncio.sleep(pauses.next_s())
