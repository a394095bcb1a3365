"""The part of a running job that has durable steps."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, overload

from orchestration_queue.errors import TransportError, UsageError
from orchestration_queue.flows import Node
from orchestration_queue.flows.called import CalledEnd, add_called, load_nodes, name_called, read_ends
from orchestration_queue.options import Duration, StepOptions
from orchestration_queue.protocol.call import chunks
from orchestration_queue.protocol.functions.oq1 import StepCall
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations import job_records, queue_settings, steps
from orchestration_queue.protocol.operations.steps import JobStep, StepKind, StoredOutcome
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import Pauses, now_ms
from orchestration_queue.worker.active_job import BaseActiveJob, RunState, duration_ms, moment_ms
from orchestration_queue.worker.calls import gather_calls, make_call
from orchestration_queue.worker.steps import StepBook, StepRun, call_step, decorate_step

__all__ = ["DurableJob"]

P = ParamSpec("P")
T = TypeVar("T")

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
        self.on_step: Callable[[str], object] | None = None
        """Called with the job's name when a step's outcome was stored."""
        self.emit_step_events = False
        """Whether the server emits an event then, too."""

    @overload
    def step(
        self, name: str, /, *, options: StepOptions | Mapping[str, Any] | None = None
    ) -> Callable[[Callable[P, Any]], Callable[P, Coroutine[Any, Any, Any]]]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        options: StepOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]: ...
    def step(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        /,
        *args: Any,
        options: StepOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once per job: store its result with the job, and return the stored one in later attempts.

        The result is stored under the job's lease before this returns, so a worker that lost the job stores nothing.
        The function runs again if the worker dies before that; make it idempotent. Steps of one job may run
        concurrently, as in :func:`asyncio.gather`. What a function raises is not stored, unless ``store_errors`` of the
        options names it, and its name can be used again. Without a function, it decorates one, whose call is the step.

        Args:
            name: Identifies the result; each step of a job needs its own.
            function: A coroutine function, or another one, which runs on the event loop; None decorates one.
            args: Its arguments.
            options: How it runs: its options, or a dict of them.
            kwargs: Its arguments by name.

        Returns:
            What the function returned as its codec reads it, in every attempt: with JSON, a tuple is a list.

        Raises:
            UsageError: The name is invalid, or used already in this attempt; or the job is a broadcast's.
            InvalidOptionError: An option is invalid.
            UnrecoverableError: The codec can't write the result, or it exceeds 1 MiB. It fails the job for good.
            LeaseLostError: The job is no longer this worker's; the result was not stored.
            StateError: The job has 10,000 steps; the result was not stored.
            TransportError: The server was unreachable, for five minutes if the result waited to be stored.

        Examples:
            ::

                @job.step("charge")
                async def charge(item: str) -> str: ...

                receipt = await charge("a book")
        """
        if function is None:
            return decorate_step(self.step, name, args, options, kwargs)
        return self._run_step(name, function, args, options, kwargs)

    async def _run_step(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        options: StepOptions | Mapping[str, Any] | None,
        kwargs: Mapping[str, Any],
    ) -> Any:
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

    async def call(
        self,
        name: str | Node,
        task: Any = None,
        /,
        *args: Any,
        options: StepOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run another task as a job of its own: end this run, and return its result once that job has completed.

        This job runs again then, as after :meth:`sleep`. The other job is added once, whatever dies, and is retried by
        its own options. A failure is not stored, unless ``store_errors`` of the options names
        :class:`~orchestration_queue.errors.JobFailedError`: the next attempt of this job calls the task again.

        Args:
            name: Identifies the call among the job's steps. Or a node, alone, whose name that is, for a task in another
                process and queue.
            task: A task of any registry, in its queue, or else in this job's; or the name of one in this job's queue.
            args: Its arguments.
            options: Which errors are stored.
            kwargs: Its arguments by name.

        Returns:
            What the task returned, as JSON values.

        Raises:
            JobFailedError: The job failed for good, with its reason and its kind of failure.
            UsageError: The name, the task or its arguments are invalid, the name was used already, the task removes
                its jobs when they end, or this job is a broadcast's.
            PayloadError: The arguments are not JSON, or larger than 1 MiB.
            LeaseLostError: The job is no longer this worker's.
            StateError: The job has 10,000 steps.

        Examples:
            ::

                thumbnail = await job.call("thumbnail", resize, path, width=100)
        """
        (result,) = await gather_calls(self, [make_call(name, task, args, kwargs)], options)
        return result

    async def gather(
        self,
        *calls: Node,
        options: StepOptions | Mapping[str, Any] | None = None,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Run several tasks at the same time, each as :meth:`call` does; return their results in order.

        Args:
            calls: What to call: ``task.node("name")(arguments)``, or ``Node("name", "task", "queue", data)``.
            options: Which errors are stored.
            return_exceptions: Return the errors of jobs that failed in place of their results.

        Returns:
            The results, once all jobs have ended.

        Raises:
            JobFailedError: A job failed for good: the first of those that did, once all have ended.
            UsageError: As of :meth:`call`, or a node waits for others.
            PayloadError: As of :meth:`call`.
            LeaseLostError: As of :meth:`call`.
            StateError: As of :meth:`call`.

        Examples:
            ::

                sizes = await job.gather(*(measure.node(f"file-{n}")(path) for n, path in enumerate(paths)))
        """
        return await gather_calls(self, calls, options, return_exceptions=return_exceptions)

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
        """Store how a step ended, unless an outcome is stored; return the outcome that counts."""
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
            emit_event=self.emit_step_events,
        )
        stored = await self._persist(lambda: self._connection.run(storing, repeatable=True))
        if self.on_step is not None and stored.result is None and kind is not StepKind.WAITS:
            self.on_step(self.name)
        return stored

    async def _start_calls(self, nodes: Sequence[Node], replaced: Mapping[str, int]) -> list[StoredOutcome]:
        """Store which jobs steps call, unless they have, and add these jobs; return the outcomes that count."""
        self._check_steps()
        calling = load_nodes(nodes)
        token = secrets.token_hex(4)
        calls = [
            StepCall(node.name, name_called(self.ref, node, token), replaced.get(node.name, 0)) for node in calling
        ]
        outcomes: list[StoredOutcome] = []
        for some in chunks(calls, steps.CALLS_PER_CALL):
            storing = steps.store_calls(self._keys, Lease(self.record, ""), some, now_ms())
            outcomes += await self._persist(functools.partial(self._connection.run, storing, repeatable=True))
        left = [
            (node, one.result or "")
            for node, one in zip(calling, outcomes, strict=True)
            if one.step.kind is StepKind.CALLS
        ]
        await self._persist(lambda: self._connection.follow(add_called(self.ref, left, self.headers, now_ms())))
        return outcomes

    async def _read_calls(self, members: Sequence[str]) -> list[CalledEnd]:
        """Return how the first of some called jobs ended, at least one: a sandbox takes a few MiB in a message."""
        return await self._connection.follow(read_ends(members))

    async def _read_origin(self) -> str:
        """Return what distinguishes this queue from others of its name."""
        return await self._connection.follow(queue_settings.read_origin(self._keys, secrets.token_hex(4)))

    async def _find_gone(self, job_ids: Sequence[str]) -> list[str]:
        """Return which jobs of this queue have no record."""
        wanted = [(self._keys, job_id) for job_id in job_ids]
        records = await self._connection.follow(job_records.jobs(wanted, ("state",)))
        return [job_id for job_id, record in zip(job_ids, records, strict=True) if record is None]

    async def _persist(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send a write that can be repeated. In an outage, try again while the worker keeps the job."""
        pauses = Pauses()
        while True:
            try:
                return await send()
            except TransportError:
                if self.should_stop or pauses.waited_s > _STORE_FOR_S:
                    raise
            await asyncio.sleep(pauses.next_s())
