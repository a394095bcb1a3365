"""What may be wrapped around handlers and lease renewals: limits, budgets, telemetry, a user's own concerns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.exchanges import Renewal
from orchestration_queue.worker.job import AsyncActiveJob

__all__ = ["CallNext", "LeaseObserver", "Lifespan", "Middleware", "OptionDefaults", "TaskRegistry"]

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
"""Runs the rest of the chain, at its end the handler; returns what the handler returned."""


class Middleware(Protocol):
    """Wrapped around every run of a handler, on the worker's loop, wherever the handler itself runs.

    It returns the job's result, usually what ``call_next`` returned. What it raises, fails the attempt.
    """

    async def __call__(self, job: AsyncActiveJob, call_next: CallNext) -> Any:
        """Run the job, with something before and after."""


@runtime_checkable
class Lifespan(Protocol):
    """What a router may bring along for the workers that use it; :class:`orchestration_queue.tasks.Tasks` does."""

    @property
    def middleware(self) -> Sequence[Middleware]:
        """What to wrap around every run, outside of the worker's own."""

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Entered before the worker takes its first job, left after its last."""


@runtime_checkable
class LeaseObserver(Protocol):
    """A router that follows the leases of its running jobs; the one for Dagster does."""

    def observe_renewal(self, leases: Sequence[Lease], renew: Callable[[], list[Renewal]]) -> list[Renewal]:
        """Call ``renew`` and return its answers, one a lease. Runs in the heartbeat's thread."""


@runtime_checkable
class OptionDefaults(Protocol):
    """A router that knows options of its jobs; :class:`orchestration_queue.tasks.Tasks` is one."""

    def default_options(self, name: str) -> Mapping[str, Any]:
        """Return the wire's options of jobs of this name that were added without their own. Cheap: called per run."""


@runtime_checkable
class TaskRegistry(Protocol):
    """A router that knows the names of its tasks, for the registry of workers; :class:`Tasks` is one."""

    @property
    def task_names(self) -> Sequence[str]:
        """The names of the jobs that it has a handler for."""
