"""What a task needs beside its arguments: declared as defaults of parameters, provided when a job runs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from orchestration_queue.errors import UsageError
from orchestration_queue.tasks.context import JOB_TYPES

if TYPE_CHECKING:
    from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager

__all__ = ["Dependency", "Depends", "Provider", "dependencies_of", "provider_name", "shared_dependencies"]

T = TypeVar("T")

Provider: TypeAlias = Callable[..., Any]
Lifetime: TypeAlias = Literal["job", "worker"]


@dataclass(frozen=True, slots=True)
class Dependency:
    """A parameter's default in place of the value.

    Attributes:
        provider: Makes the value.
        scope: Whose the value is.
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
    """Have a task's parameter filled by a provider; callers leave it out.

    ``Depends(ActiveJob)``, or ``Depends(AsyncActiveJob)`` in a coroutine, is the running job. Any other provider is a
    function, a coroutine function, or one that yields the value once and cleans up after that (also when
    decorated by :func:`contextlib.contextmanager`). Its own parameters may depend on others. A value is made once per
    job, however many ask for it, and cleaned up when the handler has returned, the latest first.

    In a coroutine task providers run on the worker's loop; in a plain task, plain ones run in the task's thread.

    Args:
        provider: Makes the value.
        scope: ``job``, or ``worker`` for one value that all jobs share: opened before a worker takes its first job,
            closed after its last. Workers of one event loop share it.

    Raises:
        UsageError: There is no such scope, or the provider cannot be called.

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
            f"Depends({provider!r}, scope={scope!r}) provides nothing; pass a function, and job or worker."
        )
    return Dependency(provider, scope)


@cache
def dependencies_of(function: Provider) -> Mapping[str, Dependency]:
    """Return a function's parameters that are provided, with what provides them.

    Raises:
        UsageError: A provider asks for what has no provider, or lives longer than what it depends on.
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
        return  # some types written in C do not tell
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
                f"Provider {named} serves a whole worker, but depends on {provider_name(inner.provider)}, which serves "
                'one job; make that scope="worker", too.'
            )


def shared_dependencies(function: Provider) -> Iterator[Dependency]:
    """Yield what a function asks of a whole worker, directly or through providers."""
    for dependency in dependencies_of(function).values():
        if dependency.scope == "worker":
            yield dependency
        else:
            yield from shared_dependencies(dependency.provider)


def provider_name(provider: Provider) -> str:
    """Return what to call a provider in an error."""
    return getattr(provider, "__qualname__", None) or repr(provider)
