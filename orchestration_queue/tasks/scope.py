"""The values that providers made, for one job or for one worker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from orchestration_queue.errors import UsageError
from orchestration_queue.tasks.depends import (
    JOB_TYPES,
    Dependency,
    Provider,
    current_job,
    dependencies_of,
    provider_name,
    shared_dependencies,
)

__all__ = ["JobScope", "Wait", "WorkerScope", "finish", "make_thread_wait", "open_for_worker", "worker_scope"]

T = TypeVar("T")

Wait: TypeAlias = Callable[[Awaitable[Any]], Awaitable[Any]]


class _Scope(AsyncExitStack):
    """Makes each value when it is first needed, and cleans up in reverse order."""

    def __init__(self, overrides: Mapping[Provider, Any], wait: Wait) -> None:
        super().__init__()
        self._overrides = overrides
        self._wait = wait
        self._values: dict[Provider, Any] = {}

    async def arguments(self, function: Provider) -> dict[str, Any]:
        """Return values for a function's provided parameters."""
        return {name: await self.value(dependency) for name, dependency in dependencies_of(function).items()}

    async def value(self, dependency: Dependency) -> Any:
        """Return the value of a dependency."""
        provider = dependency.provider
        if provider in self._overrides:
            return self._overrides[provider]
        if provider not in self._values:
            self._values[provider] = await self._make(provider)
        return self._values[provider]

    async def _make(self, provider: Provider) -> Any:
        arguments = await self.arguments(provider)
        if inspect.isgeneratorfunction(provider):
            return self.enter_context(contextmanager(provider)(**arguments))
        if inspect.isasyncgenfunction(provider):
            return await self._open(asynccontextmanager(provider)(**arguments))
        made = provider(**arguments)
        # Only a function decorated as a context manager is opened, not any object that could be: a lock, a file.
        yields = inspect.unwrap(provider)
        if inspect.isgeneratorfunction(yields) and isinstance(made, AbstractContextManager):
            return self.enter_context(made)
        if inspect.isasyncgenfunction(yields) and isinstance(made, AbstractAsyncContextManager):
            return await self._open(made)
        return await self._wait(made) if inspect.isawaitable(made) else made

    async def _open(self, manager: AbstractAsyncContextManager[T]) -> T:
        # Leaving goes through `_wait`, too: for a job in a thread, both run on the worker's event loop.
        async def leave(
            kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> bool | None:
            suppressed: bool | None = await self._wait(manager.__aexit__(kind, error, trace))
            return suppressed

        value: T = await self._wait(manager.__aenter__())
        self.push_async_exit(leave)
        return value


class WorkerScope(_Scope):
    """Values that all jobs of a worker share.

    Args:
        overrides: Values used instead of providers.
    """

    def __init__(self, overrides: Mapping[Provider, Any]) -> None:
        super().__init__(overrides, _await)
        self.loop = asyncio.get_running_loop()

    async def open(self, functions: Iterable[Provider]) -> None:
        """Make all worker-scoped dependencies of these functions, direct and indirect."""
        for function in functions:
            for dependency in shared_dependencies(function):
                await self.value(dependency)

    def shared(self, provider: Provider) -> Any:
        """Return the value that a provider made."""
        return self._values[provider]


class JobScope(_Scope):
    """Values of one job.

    Args:
        overrides: Values used instead of providers.
        worker: Holds the shared values.
        wait: Waits for awaitables.
    """

    def __init__(self, overrides: Mapping[Provider, Any], worker: WorkerScope | None, wait: Wait | None = None) -> None:
        super().__init__(overrides, wait or _await)
        self._worker = worker

    async def value(self, dependency: Dependency) -> Any:
        """Return the value of a dependency.

        Raises:
            UsageError: The dependency is worker-scoped, and no worker has made its value.
        """
        provider = dependency.provider
        if provider in JOB_TYPES:
            return current_job()
        if dependency.scope == "job" or provider in self._overrides:
            return await super().value(dependency)
        try:
            return self._worker.shared(provider)  # type: ignore[union-attr]  # without a worker: the same error
        except (AttributeError, KeyError):
            raise UsageError(
                f"{provider_name(provider)} is worker-scoped, but the worker started without it; "
                "define tasks before starting the worker, or override the provider."
            ) from None


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


_worker_scope: ContextVar[WorkerScope | None] = ContextVar("oq_worker_scope", default=None)


def worker_scope() -> WorkerScope | None:
    """Return the scope of the worker whose job is running."""
    return _worker_scope.get()


@asynccontextmanager
async def open_for_worker(overrides: Mapping[Provider, Any], functions: Iterable[Provider]) -> AsyncIterator[None]:
    """Open a worker's values for all jobs that this asyncio task starts, until the context exits."""
    async with WorkerScope(overrides) as scope:
        await scope.open(functions)
        token = _worker_scope.set(scope)
        try:
            yield
        finally:
            _worker_scope.reset(token)


def make_thread_wait(worker: WorkerScope | None) -> Wait:
    """Return how code in a thread waits for the worker's event loop: it blocks."""

    async def wait(awaitable: Awaitable[T]) -> T:
        if worker is None:
            raise UsageError(
                "A coroutine can't be a provider here, because no worker's event loop can run it; use a plain function."
            )
        return asyncio.run_coroutine_threadsafe(_await(awaitable), worker.loop).result()

    return wait


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("The coroutine waits for a loop.")
