"""The running job, as handlers receive it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, overload

from orchestration_queue.errors import JobNotFoundError, UsageError
from orchestration_queue.flows import elements
from orchestration_queue.flows.record import split_job_id
from orchestration_queue.options import StepOptions, Usage
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import ChildrenWait
from orchestration_queue.protocol.operations import control, job_output, job_records, usage
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection, report_usage_async
from orchestration_queue.states import JobState
from orchestration_queue.worker.active_job import BaseActiveJob, JobInterrupt
from orchestration_queue.worker.durable_job import DurableJob
from orchestration_queue.worker.steps import decorate_step, trace_step

__all__ = ["ActiveJob", "AsyncActiveJob"]

P = ParamSpec("P")
T = TypeVar("T")

_NAP_S = 0.1
"""How often a function in a thread that waits for its step's next run checks whether it should stop."""


class AsyncActiveJob(DurableJob):
    """The running job, for handlers that are coroutine functions."""

    def __init__(
        self, record: JobRecord, keys: QueueKeys, connection: AsyncConnection, *, has_steps: bool = True
    ) -> None:
        super().__init__(record, keys, connection, has_steps=has_steps)
        self._mapped: dict[str, elements.MappedResults] = {}

    async def log(self, text: str, *more: str) -> None:
        """Append one or more lines to the job's log in one exchange.

        Raises:
            UsageError: A line is not a string.
            PayloadError: A line is larger than 1 MiB.
        """
        await self._connection.execute(job_output.log(self._keys, self.id, (text, *more)))

    async def update_progress(self, progress: Any) -> None:
        """Store the job's progress, a number or any JSON, and publish it as an event.

        Raises:
            PayloadError: It is not JSON, or larger than 1 MiB.
        """
        await self._connection.execute(job_output.progress(self._keys, self.id, progress))

    async def update_data(self, data: Any) -> None:
        """Replace the job's payload, for this run and all later ones.

        Raises:
            PayloadError: The data is not JSON, or larger than 1 MiB.
            JobNotFoundError: The job was removed.
        """
        encoded = codec.encode(data, f"The data of job {self.name!r}")
        await self._connection.run(control.update_data(self._keys, self.id, encoded))
        self._state.record = JobRecord(self.id, {**self.record.fields, "data": encoded})

    async def report_usage(self, used: Usage) -> None:
        """Store what the job used, replacing an earlier report, and add it to the queue's usage.

        Raises:
            InvalidOptionError: ``usage`` is not a :class:`Usage`.
            JobNotFoundError: The job was removed.
            StateError: A client in another language held the usage lock for 5 s.
        """
        await report_usage_async(self._connection, self._keys, self.id, used)

    async def report_tokens(self, tokens: int) -> None:
        """Store how many tokens the job spent, for the workers' token limit. Replaces an earlier report.

        Raises:
            UsageError: It is not a number of tokens.
        """
        await self._connection.execute(usage.report_tokens(self._keys, self.id, tokens))

    async def stream(self, fields: Mapping[str, str | int | float]) -> str:
        """Append an entry to the job's output stream, for clients that follow it while the job runs.

        Returns:
            The entry's id.

        Raises:
            UsageError: There is no field, or one is neither a string nor a number.
            PayloadError: Names and values together are larger than 1 MiB.
        """
        return await self._connection.run(job_output.append(self._keys, self.id, fields))

    async def stream_chunk(self, type: str, content: str | None = None) -> str:  # noqa: A002  the wire's word
        """Append an entry with the fields ``type`` and ``content``, which readers in every language know.

        Returns:
            The entry's id.

        Raises:
            UsageError: The type is empty, or one of them is not a string.
            PayloadError: Both together are larger than 1 MiB.
        """
        return await self._connection.run(job_output.append(self._keys, self.id, job_output.chunk(type, content)))

    async def children_values(self) -> dict[str, Any]:
        """Return the results of the jobs that this one waited for.

        Returns:
            Results by the child's full name, ``prefix:{queue}:id``, as all clients of this wire name it. Children
            without a result, or not kept, are omitted. See also :meth:`upstream_results`.
        """
        values = await self._connection.follow(job_records.children_values(self._keys, self.id))
        return {ref.member: value for ref, value in values}

    async def upstream_results(self) -> dict[str, Any]:
        """Return the results of the jobs that this one waited for by short names, for the nodes of a flow.

        Returns:
            Results by node name for jobs of the same flow, otherwise by job id.
        """
        values = await self._connection.follow(job_records.children_values(self._keys, self.id))
        return {self._short_name(ref.job_id): value for ref, value in values}

    async def map_page(self, node: str, start: int = 0, default: Any = None) -> list[Any]:
        """Return about 500 results of a mapped node's elements, in order; see :meth:`map_results`.

        Args:
            node: The node, which this job waits for.
            start: The first element.
            default: Replaces the result of an element that failed.

        Returns:
            The results; an empty list if there is no element ``start``.

        Raises:
            UsageError: The job doesn't wait for such a node, or the node is not mapped.
            StateError: The node has not completed.
            JobNotFoundError: An element's job was removed.
        """
        if node not in self._mapped:
            self._mapped[node] = await self._connection.follow(elements.find_results(self._keys, self.id, node))
        return await self._connection.follow(elements.page(self._mapped[node], start, default))

    async def map_results(self, node: str, default: Any = None) -> AsyncIterator[Any]:
        """Yield the results of a mapped node's elements, in the order of its list, read in pages of 500.

        Args:
            node: The node, which this job waits for.
            default: Replaces the result of an element that failed.

        Raises:
            UsageError: The job doesn't wait for such a node, or the node is not mapped.
            StateError: The node has not completed.
            JobNotFoundError: An element's job was removed.
        """
        start = 0
        while values := await self.map_page(node, start, default):
            for value in values:
                yield value
            start += len(values)

    def _short_name(self, job_id: str) -> str:
        mine, other = split_job_id(self.id), split_job_id(job_id)
        return other[1] if mine and other and mine[0] == other[0] else job_id

    async def parents(self) -> list[ParentRef]:
        """Return the jobs that wait for this one."""
        return await self._connection.follow(job_records.parents(self._keys, self.id))

    async def state(self) -> JobState:
        """Return the job's current state: another worker may have taken it over.

        Raises:
            JobNotFoundError: It was removed.
        """
        record = await self._connection.run(job_records.job(self._keys, self.id, ("state",)))
        if record is None:
            raise JobNotFoundError(self.queue, self.id)
        return record.state

    async def move_to_waiting_children(self) -> NoReturn:
        """End this run; the job runs again when all jobs that were added with ``parent=job.ref`` have completed.

        If they already have, it runs again immediately, so check :meth:`children_values` first. Never returns.

        Raises:
            UsageError: There is no such job, so this one would wait forever.
        """
        if not await self._connection.run(job_records.count_children(self._keys, self.id)):
            raise UsageError(
                f"Job {self.id!r} of queue {self.queue!r} has no children to wait for; add them with parent=job.ref "
                "before it waits."
            )
        raise JobInterrupt(ChildrenWait)


def _from_thread(
    method: Callable[Concatenate[AsyncActiveJob, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[ActiveJob, P], T]:
    """Return the same method for threads: it runs on the worker's event loop, and the thread waits for it."""

    @functools.wraps(method)
    def call(job: ActiveJob, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By name, since a subclass may override it.
        coroutine: Coroutine[Any, Any, T] = getattr(job._job, method.__name__)(*args, **kwargs)
        return job._await(coroutine)

    return call


class ActiveJob(BaseActiveJob):
    """The running job, for handlers that are plain functions in threads."""

    def __init__(self, job: AsyncActiveJob, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(job._state)
        self._job = job
        self._loop = loop

    @overload
    def step(
        self, name: str, /, *, options: StepOptions | Mapping[str, Any] | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, Any]]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        options: StepOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any: ...
    def step(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        /,
        *args: Any,
        options: StepOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once per job, in this thread: store its result, and return the stored one in later attempts.

        Arguments and errors are those of :meth:`AsyncActiveJob.step`. The function must be a plain one, without a
        ``timeout``, since a thread can't be stopped.
        """
        if function is None:
            return decorate_step(self.step, name, args, options, kwargs)
        checked = StepOptions.coerce(options, "options")
        if checked.timeout is not None or inspect.iscoroutinefunction(function):
            what = "coroutine function" if checked.timeout is None else "timeout"
            raise UsageError(
                f"Step {name!r} of job {self.id!r} has a {what}, which needs an event loop; make the handler a "
                "coroutine function, or drop it."
            )
        run, found = self._await(self._job._open_step(name, checked))
        if found is not None:
            return run.replay(found)
        while True:
            run.begin()
            try:
                with trace_step(name):
                    result = function(*args, **kwargs)
            except Exception as error:
                pause_s = self._await(run.failed(error))
            else:
                return self._await(run.returned(result))
            self._nap(pause_s)

    sleep = _from_thread(AsyncActiveJob.sleep)
    wait_for = _from_thread(AsyncActiveJob.wait_for)
    call = _from_thread(AsyncActiveJob.call)
    gather = _from_thread(AsyncActiveJob.gather)

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _nap(self, pause_s: float) -> None:
        until = time.monotonic() + pause_s
        while not self.should_stop and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, _NAP_S))

    log = _from_thread(AsyncActiveJob.log)
    update_progress = _from_thread(AsyncActiveJob.update_progress)
    update_data = _from_thread(AsyncActiveJob.update_data)
    report_usage = _from_thread(AsyncActiveJob.report_usage)
    report_tokens = _from_thread(AsyncActiveJob.report_tokens)
    stream = _from_thread(AsyncActiveJob.stream)
    stream_chunk = _from_thread(AsyncActiveJob.stream_chunk)
    children_values = _from_thread(AsyncActiveJob.children_values)
    upstream_results = _from_thread(AsyncActiveJob.upstream_results)
    map_page = _from_thread(AsyncActiveJob.map_page)
    parents = _from_thread(AsyncActiveJob.parents)
    state = _from_thread(AsyncActiveJob.state)
    move_to_waiting_children = _from_thread(AsyncActiveJob.move_to_waiting_children)

    def map_results(self, node: str, default: Any = None) -> Iterator[Any]:
        """Yield the results of a mapped node's elements, in the order of its list, read in pages of 500.

        Arguments and errors are those of :meth:`AsyncActiveJob.map_results`.
        """
        start = 0
        while values := self.map_page(node, start, default):
            yield from values
            start += len(values)
