"""What a task receives besides its arguments: the running job, and dependencies that are provided when it runs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from orchestration_queue.errors import UsageError
from orchestration_queue.worker import ActiveJob, AsyncActiveJob

if TYPE_CHECKING:
    from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager

__all__ = [
    "JOB_TYPES",
    "Dependency",
    "Depends",
    "Provider",
    "RunningJob",
    "current_job",
    "dependencies_of",
    "job_or_none",
    "provider_name",
    "running",
    "shared_dependencies",
]

T = TypeVar("T")

RunningJob: TypeAlias = ActiveJob | AsyncActiveJob
"""An :class:`ActiveJob` in a plain function, an :class:`AsyncActiveJob` in a coroutine function."""
Provider: TypeAlias = Callable[..., Any]
Lifetime: TypeAlias = Literal["job", "worker"]

JOB_TYPES = (ActiveJob, AsyncActiveJob)
"""Annotations and providers that stand for the running job."""
_current: ContextVar[RunningJob | None] = ContextVar("oq_current_job", default=None)


def current_job() -> RunningJob:
    """Return the job whose task is running: on this thread, or in this asyncio task and those it has started.

    Raises:
        UsageError: No job is running here.
    """
    if (job := _current.get()) is None:
        raise UsageError("No job runs here; call current_job() from a task that a worker runs.")
    return job


def job_or_none() -> RunningJob | None:
    """Return the running job as :func:`current_job` does; None without one."""
    return _current.get()


@contextmanager
def running(job: RunningJob) -> Iterator[None]:
    """Make a job the current one."""
    token = _current.set(job)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass(frozen=True, slots=True)
class Dependency:
    """The default of a parameter that a provider fills.

    Attributes:
        provider: Makes the value.
        scope: ``job`` or ``worker``.
    """

    provider: Provider
    scope: Lifetime


@overload
def Depends(provider: Callable[..., _AsyncGeneratorContextManager[T]], /, *, scope: Lifetime = "job") -> T: ...


@overload
def Depends(provider: Callable[..., _GeneratorContextManager[T]], /, *, scope: Lifetime = "job") -> T: ...


@overload
def Depends(provider: Callable[..., AsyncIterator[T]], /, *, scope: Lifetime = "job") -> T: ...


@overload
def Depends(provider: Callable[..., Iterator[T]], /, *, scope: Lifetime = "job") -> T: ...


@overload
def Depends(provider: Callable[..., Awaitable[T]], /, *, scope: Lifetime = "job") -> T: ...


@overload
def Depends(provider: Callable[..., T], /, *, scope: Lifetime = "job") -> T: ...


def Depends(provider: Provider, /, *, scope: Lifetime = "job") -> Any:  # noqa: N802  as FastAPI's users know it
    """Mark a task's parameter as filled by a provider; callers omit it.

    ``Depends(ActiveJob)``, or ``Depends(AsyncActiveJob)`` in a coroutine function, is the running job. Any other
    provider is a function, a coroutine function, or a generator function that yields the value once and then cleans up
    (also if decorated with :func:`contextlib.contextmanager`). Its own parameters can have dependencies, too. A value
    is made once per job, no matter how many parameters need it, and cleaned up after the handler has returned, in
    reverse order.

    In a coroutine task, providers run on the worker's event loop; in a plain task, plain providers run in the task's
    thread.

    Args:
        provider: Makes the value.
        scope: ``job``, or ``worker`` for one value that all jobs share. It is made before a worker takes its first job,
            and cleaned up after its last. Workers of one event loop share it.

    Raises:
        UsageError: There is no such scope, or the provider is not callable.

    Examples:
        ::

            async def connect() -> AsyncIterator[Database]:
                async with Database() as database:
                    yield database

            @tasks.task
            async def count(table: str, database: Database = Depends(connect, scope="worker")) -> int: ...
    """
    if scope not in ("job", "worker") or not callable(provider):
        raise UsageError(
            f"Depends() needs a function and scope 'job' or 'worker', got {provider!r} and {scope!r}; pass a function."
        )
    return Dependency(provider, scope)


@cache
def dependencies_of(function: Provider) -> Mapping[str, Dependency]:
    """Return a function's parameters that are provided, with their providers.

    Raises:
        UsageError: A provider's own parameter has no provider, or it lives longer than what it depends on.
    """
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        if isinstance(parameter.default, Dependency):
            _check(parameter.default)
            found[parameter.name] = parameter.default
    return found


def _check(dependency: Dependency) -> None:
    provider, named = dependency.provider, provider_name(dependency.provider)
    if provider in JOB_TYPES:
        return
    try:
        parameters = inspect.signature(provider).parameters.values()
    except ValueError:
        return  # some types written in C have no signature
    for parameter in parameters:
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not variadic:
            raise UsageError(
                f"Provider {named} has the parameter {parameter.name!r}, which nothing fills; "
                "give it a default, such as Depends(...)."
            )
    for inner in dependencies_of(provider).values():
        if dependency.scope == "worker" and inner.scope == "job":
            raise UsageError(
                f"Provider {named} is worker-scoped, but depends on {provider_name(inner.provider)}, which is "
                'job-scoped; make that scope="worker", too.'
            )


def shared_dependencies(function: Provider) -> Iterator[Dependency]:
    """Yield the worker-scoped dependencies of a function, direct and indirect."""
    for dependency in dependencies_of(function).values():
        if dependency.scope == "worker":
            yield dependency
        else:
            yield from shared_dependencies(dependency.provider)


def provider_name(provider: Provider) -> str:
    """Return the name of a provider for error messages."""
    return getattr(provider, "__qualname__", None) or repr(provider)
