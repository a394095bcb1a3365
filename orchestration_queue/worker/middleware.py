"""What can be wrapped around handlers and lease renewals: limits, budgets, telemetry, user code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.exchanges import Renewal
from orchestration_queue.worker.job import AsyncActiveJob

__all__ = ["CallNext", "LeaseObserver", "Lifespan", "Middleware", "OptionDefaults", "TaskRegistry"]

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
"""Runs the rest of the chain, with the handler at its end; returns what the handler returned."""


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
