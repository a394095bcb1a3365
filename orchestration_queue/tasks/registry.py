"""The registry of tasks: which functions a worker runs, and how callers add jobs for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from inspect import isasyncgenfunction, isgeneratorfunction
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, get_args, overload

from orchestration_queue.errors import InvalidNameError, UnrecoverableError, UsageError
from orchestration_queue.options import JobOptions
from orchestration_queue.options.base import name_problem
from orchestration_queue.options.habits import option_advice
from orchestration_queue.options.job import NO_OPTIONS
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.tasks.clients import Clients
from orchestration_queue.tasks.depends import Provider
from orchestration_queue.tasks.logs import JobLogs
from orchestration_queue.tasks.scope import open_for_worker
from orchestration_queue.tasks.task import Isolation, Task
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Handler, Middleware
from orchestration_queue.worker.active_job import CodeVersion, OtherVersion
from orchestration_queue.worker.interfaces import check_middleware

__all__ = ["Tasks"]

P = ParamSpec("P")
R = TypeVar("R")


class _Decorator(Protocol):
    """Makes a function a task. A running job as first parameter is not part of a call."""

    @overload
    def __call__(self, function: Callable[Concatenate[ActiveJob, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[AsyncActiveJob, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Tasks:
    """Tasks by name: which functions a worker runs, and how callers add jobs for them.

    Its connections open when first used. ``with tasks:`` closes them at the end for sync code, ``async with tasks:``
    for the running event loop.

    Args:
        queue: Where jobs are added, unless the task or the call says otherwise. A worker names its own queue.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory. A worker names its own.
        prefix: First part of every key.
        codec: How job data are written; see :class:`~orchestration_queue.client.Queue`.
        middleware: What workers wrap around every run, outermost first.
        logs: Whether to copy log records of tasks to their jobs' logs; a :class:`JobLogs` configures it.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: There is no such codec, or an argument has the wrong type.

    Examples:
        >>> tasks = Tasks(queue="sums")
        >>> @tasks.task
        ... def add(a: int, b: int = 1) -> int:
        ...     return a + b
        >>> add(1, 2), list(tasks), add.job(1, b=2).data
        (3, ['add'], {'a': 1, 'b': 2})
    """

    takes_batches = False
    """Workers hand tasks one job at a time."""

    def __init__(
        self,
        queue: str | None = None,
        *,
        url: str | None = None,
        prefix: str = DEFAULT_PREFIX,
        codec: str = "json",
        middleware: Sequence[Middleware] = (),
        logs: bool = False,
    ) -> None:
        check_middleware(middleware)
        if not isinstance(logs, bool):
            raise UsageError(f"`logs` must be True or False, got {logs!r}; pass `logs=True`.")
        self._queue = _check_queue(queue)
        self._clients = Clients(url, prefix, codec)
        self._tasks: dict[str, Task[..., Any]] = {}
        self._overrides: dict[Provider, Any] = {}
        self.middleware: Sequence[Middleware] = (JobLogs(), *middleware) if logs else tuple(middleware)

    @overload
    def task(self, function: Callable[Concatenate[ActiveJob, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[AsyncActiveJob, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        options: JobOptions = NO_OPTIONS,
        isolation: Isolation | None = None,
        version: str | None = None,
        other_versions: OtherVersion = "fail",
    ) -> _Decorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        options: JobOptions = NO_OPTIONS,
        isolation: Isolation | None = None,
        version: str | None = None,
        other_versions: OtherVersion = "fail",
        **other: Any,
    ) -> Any:
        """Make a function a task: a job's data are its named arguments, and its result must be JSON-serializable.

        A parameter annotated :class:`ActiveJob` (:class:`AsyncActiveJob` in a coroutine function) receives the running
        job, and one with a default of :func:`Depends` the provider's value; callers omit both. Make the job the first
        parameter, so that type checkers know that it is omitted.

        Args:
            function: The function, if used as a bare decorator.
            name: The jobs' name; default: the function's.
            queue: Where its jobs are added; default: the registry's.
            options: How its jobs are placed, retried, limited and kept. ``attempts``, ``backoff`` and ``timeout`` apply
                to every job with this name that doesn't set them, also if ``oq job add`` or Node added it.
            isolation: ``process`` runs it in a separate process, see :func:`~orchestration_queue.worker.sandboxed`.
            version: The version of its code: a job with durable steps continues only with the version that stored them.
            other_versions: What to do with a job of another version when it uses its first step: ``fail`` fails it
                for good, ``wait`` leaves it to workers of that version.
            **other: None: options of jobs belong in ``options``.

        Raises:
            InvalidNameError: Another task has that name, or the queue's name is invalid.
            UsageError: A parameter can't be filled from a job's data, or by a provider; or the version is invalid.
        """
        if other:
            raise UsageError(_describe_other(*other))
        chosen = JobOptions.coerce(options, "options")
        if isolation not in (None, *get_args(Isolation)):
            raise UsageError(f"`isolation` must be 'process' or None, got {isolation!r}; pass `isolation='process'`.")
        if name is not None and (problem := name_problem(name)):
            raise InvalidNameError(f"Task name {name!r} {problem}, which the wire cannot carry; pass `name='send'`.")

        if version is None and other_versions != "fail":
            raise UsageError("`other_versions` is given without `version`, of which there are others; pass both.")
        code = None if version is None else CodeVersion(version, other_versions)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(function, type) or not callable(function) or not hasattr(function, "__name__"):
                raise UsageError(f"A task must be a function, got {function!r}; write `@tasks.task` above a `def`.")
            if isgeneratorfunction(function) or isasyncgenfunction(function):
                raise UsageError(
                    f"Task {function.__name__!r} is a generator, and a job has one result; return a list, or write "
                    "each value by `job.stream(...)`."
                )
            named = name or function.__name__
            if named in self._tasks:
                raise InvalidNameError(
                    f"There are two tasks named {named!r}, and jobs find their function by name; pass another `name=`."
                )
            task = self._tasks[named] = Task(
                function,
                named,
                queue=_check_queue(queue) or self._queue,
                options=chosen,
                isolation=isolation,
                version=code,
                clients=self._clients,
                overrides=self._overrides,
            )
            return task

        return register if function is None else register(function)

    @property
    def queue(self) -> str | None:
        """Where jobs are added unless the task or the call says otherwise; ``oq worker`` serves it by default."""
        return self._queue

    @property
    def task_names(self) -> list[str]:
        """The tasks' names, which workers register."""
        return list(self._tasks)

    def handler(self, name: str) -> Handler:
        """Return the handler for jobs with this name.

        Raises:
            UnrecoverableError: No task has that name.
        """
        if name not in self._tasks:
            known = ", ".join(sorted(self)) or "none"
            raise UnrecoverableError(f"This worker has no task {name!r}, so the job cannot run here; it knows {known}.")
        return self._tasks[name].as_handler

    def default_options(self, name: str) -> Mapping[str, Any]:
        """Return the task's attempts, backoff and timeout, by their wire names, for jobs added without them."""
        task = self._tasks.get(name)
        return {} if task is None else task.default_options(name)

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Return a context for a worker's life, in which worker-scoped dependencies are open."""
        return open_for_worker(self._overrides, [task.function for task in self._tasks.values()])

    @contextmanager
    def override(self, provider: Callable[..., Any], value: object) -> Iterator[None]:
        """Replace a provider with a value for this registry's tasks, in tests."""
        before = dict(self._overrides)
        self._overrides[provider] = value
        try:
            yield
        finally:
            self._overrides.clear()
            self._overrides.update(before)

    def close(self) -> None:
        """Close the connection of sync code. A later call opens another."""
        self._clients.close()

    async def aclose(self) -> None:
        """Close the connection of the running event loop. A later call opens another."""
        await self._clients.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the tasks' names, in the order of their definition."""
        return iter(self._tasks)

    def __getitem__(self, name: str) -> Task[..., Any]:
        """Return the task with this name."""
        return self._tasks[name]


def _describe_other(name: str, *_: str) -> str:
    """Say where an unknown argument of a task belongs."""
    wanted = "pass name, queue, options, isolation or version"
    if name in JobOptions.model_fields:
        wanted = f"pass `options=JobOptions({name}=...)`"
    elif advice := option_advice(name, JobOptions.model_fields):
        wanted = f"pass `options=JobOptions(...)` with {advice}"
    return f"@tasks.task has no argument {name!r}; {wanted}."


def _check_queue(queue: str | None) -> str | None:
    return None if queue is None else QueueKeys(queue).queue
