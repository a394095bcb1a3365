"""A function that workers run as jobs: checked by type checkers and by pydantic."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypeAlias, TypeVar, overload

from orchestration_queue.client import AsyncJob, Job, NewJob
from orchestration_queue.errors import UnrecoverableError, UsageError
from orchestration_queue.flows import Dependency, Node, TriggerRule, names_of
from orchestration_queue.flows.mapping import mapped_node
from orchestration_queue.options import JobOptions
from orchestration_queue.options.habits import TASK_HABITS, advise
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.tasks.clients import AsyncTaskJob, Clients, TaskJob
from orchestration_queue.tasks.depends import Provider, RunningJob, dependencies_of, running
from orchestration_queue.tasks.scope import JobScope, Wait, finish, make_thread_wait, worker_scope
from orchestration_queue.tasks.signature import TaskSignature
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Handler
from orchestration_queue.worker.active_job import CodeVersion
from orchestration_queue.worker.sandbox import sandboxed

__all__ = ["AsyncTask", "Isolation", "Task", "make_handler"]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
"""Covariant, so that every type that a checker derives for an `async def` counts as a coroutine."""
T = TypeVar("T")

Isolation: TypeAlias = Literal["process"]

_WORKER_OPTIONS = ("attempts", "backoff", "timeout")
"""Options that the worker applies, so a task can set them for jobs of every producer. Adding applies all others."""


class Task(Generic[P, R_co]):
    """A function that workers run as jobs, created by :class:`Tasks`.

    Calling the task calls the function.

    Attributes:
        name: The jobs' name.
        function: The function.
        queue: Where its jobs are added; None without its own queue.
        options: How its jobs are placed, retried, limited and kept.
        as_handler: The function as a worker's handler.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        name: str,
        *,
        queue: str | None,
        options: JobOptions,
        isolation: Isolation | None,
        version: CodeVersion | None,
        clients: Clients,
        overrides: Mapping[Provider, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self.function = function
        self.queue = queue
        self.options = options
        self._signature = TaskSignature(function, name)
        self._clients = clients
        handler = make_handler(function, self._signature, overrides, version)
        if isolation is not None:
            self._signature.refuse_shared_values()
            handler = sandboxed(handler, named=function)
        self.as_handler = handler
        wire = options.model_copy(update={"delay_until": None}).wire()
        self._worker_options = {option: wire[option] for option in _WORKER_OPTIONS if option in wire}

    if not TYPE_CHECKING:
        __getattr__ = advise(TASK_HABITS)

    def __repr__(self) -> str:
        return f"<Task {self.name} of queue {self.queue}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function in this process."""
        return self.function(*args, **kwargs)

    def handler(self, name: str) -> Handler:
        """Return the handler for jobs with this name: a worker can serve one task, without its registry's providers.

        Raises:
            UnrecoverableError: The task has another name.
        """
        if name != self.name:
            raise UnrecoverableError(
                f"This worker serves task {self.name!r} alone, so the job {name!r} cannot run here; "
                "give the worker all tasks that its queue's jobs need."
            )
        return self.as_handler

    def default_options(self, name: str) -> Mapping[str, Any]:
        """Return the options that a worker applies to jobs added without them, by their wire names."""
        return self._worker_options if name == self.name else {}

    def with_options(self, options: JobOptions) -> Self:
        """Return the task with other options for its jobs. Options that are not given are kept."""
        variant = copy.copy(self)
        variant.options = JobOptions(
            **_explicit_options(self.options) | _explicit_options(JobOptions.coerce(options, "options"))
        )
        return variant

    def with_queue(self, queue: str) -> Self:
        """Return the task with its jobs in another queue.

        Raises:
            InvalidNameError: The queue's name is invalid.
        """
        variant = copy.copy(self)
        variant.queue = QueueKeys(queue).queue
        return variant

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return a job that calls the function with these arguments, to be added later with :meth:`Queue.add_bulk`.

        Raises:
            UsageError: The arguments don't match the function's signature.
            PayloadError: They match, but can't be written as JSON.
        """
        return NewJob(self.name, self._signature.data(args, kwargs), self.options)

    @overload
    def add(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> TaskJob[T]: ...
    @overload
    def add(self, *args: P.args, **kwargs: P.kwargs) -> TaskJob[R_co]: ...
    def add(self, *args: P.args, **kwargs: P.kwargs) -> TaskJob[Any]:
        """Add a job that calls the function with these arguments. In a coroutine, use ``await task.aio.add(...)``.

        Returns:
            The job. If a job with its id or deduplication id already existed, that job, with ``is_new`` False; nothing
            was added.

        Raises:
            UsageError: The arguments don't match the function's signature, or the task has no queue. Nothing was sent.
            PayloadError: The arguments can't be written, or are larger than 1 MiB. Nothing was sent.
        """
        new = self.job(*args, **kwargs)
        return self._handle(self._clients.queue(self._queue).add(new.name, new.data, new.options))

    @overload
    def add_bulk(self: Task[P, Coroutine[Any, Any, T]], jobs: Iterable[NewJob]) -> list[TaskJob[T]]: ...
    @overload
    def add_bulk(self, jobs: Iterable[NewJob]) -> list[TaskJob[R_co]]: ...
    def add_bulk(self, jobs: Iterable[NewJob]) -> list[TaskJob[Any]]:
        """Add many jobs, 100 per call. In a coroutine, use ``await task.aio.add_bulk(...)``.

        Args:
            jobs: Jobs that :meth:`job` of this task returned.

        Returns:
            A job for each one given, in the same order. Those that already existed have ``is_new`` False.

        Raises:
            UsageError: One is a job of another task; none was added.
            ServerError: The server refused a job; others may have been added.
        """
        mine = self._check_jobs(jobs)
        return [self._handle(job) for job in self._clients.queue(self._queue).add_bulk(mine)]

    @property
    def aio(self) -> AsyncTask[P, R_co]:
        """The task for coroutines: ``await task.aio.add(...)``."""
        return AsyncTask(self)

    @overload
    def track(self: Task[P, Coroutine[Any, Any, T]], job: Job) -> TaskJob[T]: ...
    @overload
    def track(self: Task[P, Coroutine[Any, Any, T]], job: AsyncJob) -> AsyncTaskJob[T]: ...
    @overload
    def track(self, job: Job) -> TaskJob[R_co]: ...
    @overload
    def track(self, job: AsyncJob) -> AsyncTaskJob[R_co]: ...
    def track(self, job: Job | AsyncJob) -> TaskJob[Any] | AsyncTaskJob[Any]:
        """Return a job of this task, added to or found in a queue, as a job with a typed result."""
        if not isinstance(job, Job | AsyncJob):
            raise UsageError(f"`job` must be a job of a queue, got {job!r}; pass `queue.get('1')`.")
        return self._handle(job)

    def node(
        self,
        name: str,
        *,
        deps: Iterable[Dependency] = (),
        trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS,
        optional_deps: Iterable[Dependency] = (),
    ) -> Callable[P, Node]:
        """Return a function that makes a flow node for this task from the function's arguments.

        Args:
            name: Unique in the flow.
            deps: The nodes, names of nodes, or sub-flows, that it waits for.
            trigger_rule: Which outcomes of these it needs to run.
            optional_deps: Nodes that it waits for whatever their outcome.

        Examples:
            ::

                Dag("thumbs", [load := fetch.node("load")(url), resize.node("small", deps=[load])(width=100)], "images")
        """

        def call(*args: P.args, **kwargs: P.kwargs) -> Node:
            data = self._signature.data(args, kwargs)
            options, waits, may_fail = self.options, names_of(deps), names_of(optional_deps)
            return Node(name, self.name, self.queue, data, options, waits, trigger_rule, may_fail)

        return call

    def map(
        self,
        name: str,
        *,
        over: Dependency,
        as_: str | None = None,
        data: Mapping[str, Any] | None = None,
        deps: Iterable[Dependency] = (),
        max_concurrency: int | None = None,
        allow_failures: bool = False,
    ) -> Node:
        """Return a flow node that runs this task once for each element of the list that another node returns.

        Args:
            name: Unique in the flow.
            over: The node that returns the list.
            as_: The parameter that receives an element. Without it, elements are dicts of arguments.
            data: Arguments that are the same for all elements.
            deps: What else the node waits for.
            max_concurrency: Maximum number of elements at a time; None sets no limit.
            allow_failures: Complete even if elements failed; see :meth:`DagBuilder.map`.

        Raises:
            UsageError: The task has no such parameter, or the arguments can't be stored for elements.

        Examples:
            ::

                thumbs = builder.add(resize.map("thumbs", over=listing, as_="path", data={"width": 100}))
        """
        self._signature.refuse_unknown([*(data or ()), *([as_] if as_ is not None else ())])
        lists, others = names_of([over]), names_of(deps)
        return mapped_node(
            name,
            self.name,
            lists,
            others,
            queue=self.queue,
            as_=as_,
            data=data,
            options=self.options,
            max_concurrency=max_concurrency,
            allow_failures=allow_failures,
        )

    @property
    def _queue(self) -> str:
        if self.queue is None:
            raise UsageError(
                f"Task {self.name!r} has no queue to add its jobs to; "
                "pass Tasks(queue=...), @tasks.task(queue=...), or call with_queue() first."
            )
        return self.queue

    def _check_jobs(self, jobs: Iterable[NewJob]) -> list[NewJob]:
        if isinstance(jobs, str | Mapping) or not isinstance(jobs, Iterable):
            raise UsageError(f"`jobs` must be a list of jobs, got {jobs!r}; pass `[{self.name}.job(...), ...]`.")
        mine = list(jobs)
        if strange := [job for job in mine if not isinstance(job, NewJob)]:
            raise UsageError(f"`jobs` must hold jobs, got {strange[0]!r}; pass what `{self.name}.job(...)` returned.")
        if other := next((job for job in mine if job.name != self.name), None):
            raise UsageError(
                f"Task {self.name!r} cannot add the job of task {other.name!r}, whose result has another type; "
                "add jobs of several tasks by a queue's add_bulk()."
            )
        return mine

    @overload
    def _handle(self, job: Job) -> TaskJob[Any]: ...
    @overload
    def _handle(self, job: AsyncJob) -> AsyncTaskJob[Any]: ...
    def _handle(self, job: Job | AsyncJob) -> TaskJob[Any] | AsyncTaskJob[Any]:
        if isinstance(job, Job):
            return TaskJob(job, self._signature.result)
        return AsyncTaskJob(job, self._signature.result)


class AsyncTask(Generic[P, R_co]):
    """A task for coroutines: :attr:`Task.aio`."""

    def __init__(self, task: Task[P, R_co]) -> None:
        self._task = task

    @overload
    async def add(self: AsyncTask[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> AsyncTaskJob[T]: ...
    @overload
    async def add(self, *args: P.args, **kwargs: P.kwargs) -> AsyncTaskJob[R_co]: ...
    async def add(self, *args: P.args, **kwargs: P.kwargs) -> AsyncTaskJob[Any]:
        """Add a job as :meth:`Task.add` does."""
        task = self._task
        new = task.job(*args, **kwargs)
        return task._handle(await task._clients.async_queue(task._queue).add(new.name, new.data, new.options))

    @overload
    async def add_bulk(self: AsyncTask[P, Coroutine[Any, Any, T]], jobs: Iterable[NewJob]) -> list[AsyncTaskJob[T]]: ...
    @overload
    async def add_bulk(self, jobs: Iterable[NewJob]) -> list[AsyncTaskJob[R_co]]: ...
    async def add_bulk(self, jobs: Iterable[NewJob]) -> list[AsyncTaskJob[Any]]:
        """Add many jobs as :meth:`Task.add_bulk` does."""
        task = self._task
        mine = task._check_jobs(jobs)
        return [task._handle(job) for job in await task._clients.async_queue(task._queue).add_bulk(mine)]


def _explicit_options(options: JobOptions) -> dict[str, Any]:
    """Return the arguments that were given explicitly."""
    return {name: getattr(options, name) for name in options.model_fields_set}


def make_handler(
    function: Callable[..., Any],
    signature: TaskSignature,
    overrides: Mapping[Provider, Any],
    version: CodeVersion | None = None,
) -> Handler:
    """Return a handler that reads the job's data, provides the function's dependencies, and returns a JSON result.

    Args:
        function: The task's function.
        signature: Reads the data.
        overrides: Values used instead of providers when the job runs.
        version: The version of its code, for jobs with durable steps.
    """
    is_coroutine = iscoroutinefunction(function)
    is_provided = bool(dependencies_of(function))

    async def call(arguments: dict[str, Any]) -> Any:
        result = function(**arguments)
        return signature.dump_result(await result if is_coroutine else result)

    async def run(job: RunningJob, wait: Wait | None = None) -> Any:
        """Run a job. With a plain function this never suspends: `wait` blocks for whatever must be awaited."""
        arguments = signature.arguments(job)
        if version is not None:
            job.pin_version(version.name, otherwise=version.otherwise)
        with running(job):
            if not is_provided:
                return await call(arguments)
            async with JobScope(overrides, worker_scope(), wait) as scope:
                return await call(arguments | await scope.arguments(function))

    async def run_on_loop(job: AsyncActiveJob) -> Any:
        return await run(job)

    def run_in_thread(job: ActiveJob) -> Any:
        return finish(run(job, make_thread_wait(worker_scope())))

    handler = run_on_loop if is_coroutine else run_in_thread
    handler.__qualname__ = getattr(function, "__qualname__", type(function).__name__)  # for logs
    return handler
