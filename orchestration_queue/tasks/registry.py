"""The registry of tasks, and the bridge from a job's data to a function's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import to_jsonable_python

from orchestration_queue.errors import InvalidNameError, UnrecoverableError, UsageError
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Handler

__all__ = ["Task", "Tasks"]

P = ParamSpec("P")
R = TypeVar("R")

_JOB_TYPES = (ActiveJob, AsyncActiveJob)


@dataclass(frozen=True)
class Task(Generic[P, R]):
    """A function that workers run as jobs.

    Calling the task calls the function, as if it were no task.

    Attributes:
        name: The jobs' name.
        function: What runs.
        arguments: The model that a job's data must satisfy.
        job_parameter: The parameter that receives the running job; None when there is none.
    """

    name: str
    function: Callable[P, R]
    arguments: type[BaseModel]
    job_parameter: str | None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    @property
    def handler(self) -> Handler:
        """The function as a worker's handler."""
        function: Callable[..., Any] = self.function

        def run(job: ActiveJob) -> Any:
            return to_jsonable_python(function(**self._arguments_of(job)))

        async def run_async(job: AsyncActiveJob) -> Any:
            return to_jsonable_python(await function(**self._arguments_of(job)))

        return run_async if inspect.iscoroutinefunction(self.function) else run

    def _arguments_of(self, job: ActiveJob | AsyncActiveJob) -> dict[str, Any]:
        try:
            model = self.arguments.model_validate(job.data if job.data is not None else {})
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"]) or "data"
            raise UnrecoverableError(
                f"Task {self.name!r} cannot take the job's data, because {where}: {problem['msg']}; "
                "add the job again with arguments that fit the function."
            ) from None
        arguments = {name: getattr(model, name) for name in type(model).model_fields}
        if self.job_parameter is not None:
            arguments[self.job_parameter] = job
        return arguments


class Tasks:
    """The tasks a worker offers, by name.

    Example:
        >>> tasks = Tasks()
        >>> @tasks.task
        ... def add(a: int, b: int) -> int:
        ...     return a + b
        >>> add(1, 2), list(tasks)
        (3, ['add'])
    """

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: None = None, /, *, name: str | None = None) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
        """Make a function a task: its jobs' data are its keyword arguments, its result must be JSON.

        A parameter annotated :class:`ActiveJob` (or :class:`AsyncActiveJob` in a coroutine function) receives the
        running job.

        Args:
            function: The function, when used as a bare decorator.
            name: The jobs' name; default the function's.

        Raises:
            InvalidNameError: Another task has that name.
            UsageError: A parameter cannot be filled from a job's data.
        """
        if function is None:
            return lambda decorated: self._register(decorated, name)
        return self._register(function, name)

    def _register(self, function: Callable[..., Any], name: str | None) -> Task[..., Any]:
        name = name or function.__name__
        if name in self._tasks:
            raise InvalidNameError(
                f"There are two tasks named {name!r}, and jobs find their function by name; pass another `name=`."
            )
        task = Task(name, function, *_parameters(function, name))
        self._tasks[name] = task
        return task

    def handler(self, name: str) -> Handler:
        """The handler for jobs of this name.

        Raises:
            UnrecoverableError: No task has that name.
        """
        if name not in self._tasks:
            known = ", ".join(sorted(self)) or "none"
            raise UnrecoverableError(f"This worker has no task {name!r}, so the job cannot run here; it knows {known}.")
        return self._tasks[name].handler

    def __iter__(self) -> Iterator[str]:
        """Iterate over the tasks' names, in the order of their definition."""
        return iter(self._tasks)

    def __getitem__(self, name: str) -> Task[..., Any]:
        """The task of that name."""
        return self._tasks[name]


def _parameters(function: Callable[..., Any], name: str) -> tuple[type[BaseModel], str | None]:
    """The model of a function's arguments, and the parameter that receives the job."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    job_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint in _JOB_TYPES:
            job_parameter = parameter.name
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UsageError(
                f"Task {name!r} has the parameter {parameter}, and a job's data are named values; "
                "give it a plain parameter instead."
            )
        else:
            fields[parameter.name] = (hint, ... if parameter.default is parameter.empty else parameter.default)
    return create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields), job_parameter
