"""What callers pass to a worker: handlers, routers and middleware, checked when the worker is created."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from orchestration_queue.errors import UsageError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.exchanges import Renewal
from orchestration_queue.server import parse_url
from orchestration_queue.worker.job import AsyncActiveJob
from orchestration_queue.worker.slots import SharedSlots

__all__ = [
    "CallNext",
    "Handler",
    "LeaseObserver",
    "Lifespan",
    "Middleware",
    "OptionDefaults",
    "Router",
    "TaskRegistry",
    "check_collaborators",
    "check_handler",
    "check_middleware",
    "check_options",
]

Handler: TypeAlias = Callable[[Any], Any]
"""A function of one :class:`ActiveJob`, or a coroutine function of one :class:`AsyncActiveJob`."""

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
"""Runs the rest of the chain, with the handler at its end; returns what the handler returned."""


@runtime_checkable
class Router(Protocol):
    """Finds the handler for a kind of job; :class:`orchestration_queue.tasks.Tasks` is one."""

    def handler(self, name: str) -> Handler:
        """Return the handler for jobs with this name.

        Raises:
            UnrecoverableError: There is no handler for this name.
        """


class Middleware(Protocol):
    """Wraps every run of a handler, on the worker's event loop, wherever the handler itself runs.

    It returns the job's result, usually what ``call_next`` returned. An exception that it raises fails the attempt.
    """

    async def __call__(self, job: AsyncActiveJob, call_next: CallNext) -> Any:
        """Run the job, with code before and after."""


@runtime_checkable
class Lifespan(Protocol):
    """What a router can provide for the workers that use it; :class:`orchestration_queue.tasks.Tasks` does."""

    @property
    def middleware(self) -> Sequence[Middleware]:
        """What to wrap around every run, outside of the worker's own."""

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Return a context that is entered before the worker takes its first job, and exited after its last."""


@runtime_checkable
class LeaseObserver(Protocol):
    """A router that follows the leases of its running jobs, such as Dagster's."""

    def observe_renewal(self, leases: Sequence[Lease], renew: Callable[[], list[Renewal]]) -> list[Renewal]:
        """Call ``renew`` and return its results, one per lease. Runs in the heartbeat's thread."""


@runtime_checkable
class OptionDefaults(Protocol):
    """A router that knows options of its jobs, such as :class:`orchestration_queue.tasks.Tasks`."""

    def default_options(self, name: str) -> Mapping[str, Any]:
        """Return the wire's options of jobs with this name that were added without their own. Called per run."""


@runtime_checkable
class TaskRegistry(Protocol):
    """A router that knows the names of its tasks, for the workers' registrations; :class:`Tasks` is one."""

    @property
    def task_names(self) -> Sequence[str]:
        """The names of the jobs that it has handlers for."""


def check_options(options: object) -> WorkerOptions:
    """Return the options; a mapping is validated into them.

    Raises:
        InvalidOptionError: The mapping has a wrong value or an unknown name.
        UsageError: They are something else.
    """
    if options is None:
        return WorkerOptions()
    if isinstance(options, WorkerOptions):
        return options
    if isinstance(options, Mapping) and all(isinstance(name, str) for name in options):
        return WorkerOptions(**options)
    raise UsageError(f"`options` must be WorkerOptions or a dict of them, got {options!r}; pass WorkerOptions().")


def check_handler(handler: object) -> None:
    """Refuse handlers that can't run jobs.

    Raises:
        UsageError: It is neither a function of one argument nor a router.
    """
    if isinstance(handler, Router) and not isinstance(handler, type):
        return
    advice = "pass a function of the job, or a router such as Tasks"
    if isinstance(handler, type):
        raise UsageError(f"`handler` must be a function or a router, got the class {_name(handler)}; {advice}.")
    if not callable(handler):
        raise UsageError(f"`handler` must be a function of one job or a router, got {handler!r}; {advice}.")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise UsageError(f"`handler` {_name(handler)} is a generator function, which can't return a result; {advice}.")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # builtins without a signature
    try:
        signature.bind(object())
    except TypeError:
        raise UsageError(f"`handler` {_name(handler)}{signature} cannot be called with one job; {advice}.") from None


def check_middleware(middleware: object) -> None:
    """Refuse middleware that would only fail when the first job runs.

    Raises:
        UsageError: It is not a list of callables.
    """
    if isinstance(middleware, str) or not isinstance(middleware, Sequence):
        raise UsageError(f"`middleware` must be a list of callables, got {middleware!r}; pass [] for none.")
    for each in middleware:
        if not callable(each):
            raise UsageError(f"`middleware` must hold callables, got {each!r}; pass `async def f(job, call_next)`.")


def check_collaborators(url: Any, middleware: object, strategies: object, slots: object) -> None:
    """Refuse arguments that would only fail when the first job runs.

    Raises:
        UsageError: An argument has the wrong type.
    """
    if url is not None:
        parse_url(url)
    check_middleware(middleware)
    if strategies is not None and not (
        isinstance(strategies, Mapping) and all(isinstance(n, str) and callable(f) for n, f in strategies.items())
    ):
        raise UsageError(
            f"`strategies` must map names to functions of (failures, error), got {strategies!r}; pass a dict."
        )
    if slots is not None and not isinstance(slots, SharedSlots):
        raise UsageError(f"`slots` must be SharedSlots, got {slots!r}; pass SharedSlots(4), or set `concurrency`.")


def _name(handler: object) -> str:
    return str(getattr(handler, "__qualname__", None) or type(handler).__qualname__)
