"""A task's function as a worker's handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any

from orchestration_queue.tasks.context import RunningJob, running
from orchestration_queue.tasks.depends import Provider, dependencies_of
from orchestration_queue.tasks.scope import JobScope, Wait, finish, waiting_from_thread, worker_scope
from orchestration_queue.tasks.signature import TaskSignature
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Handler

__all__ = ["make_handler"]


def make_handler(function: Callable[..., Any], signature: TaskSignature, overrides: Mapping[Provider, Any]) -> Handler:
    """Return a handler that reads the job's data, provides the function's dependencies, and returns a JSON result.

    Args:
        function: The task's function.
        signature: Reads the data.
        overrides: Values used instead of providers when the job runs.
    """
    is_coroutine = iscoroutinefunction(function)
    is_provided = bool(dependencies_of(function))

    async def call(arguments: dict[str, Any]) -> Any:
        result = function(**arguments)
        return signature.written(await result if is_coroutine else result)

    async def run(job: RunningJob, wait: Wait | None = None) -> Any:
        """Run a job. With a plain function this never suspends: `wait` blocks for whatever must be awaited."""
        arguments = signature.arguments(job)
        with running(job):
            if not is_provided:
                return await call(arguments)
            async with JobScope(overrides, worker_scope(), wait) as scope:
                return await call(arguments | await scope.arguments(function))

    async def run_on_loop(job: AsyncActiveJob) -> Any:
        return await run(job)

    def run_in_thread(job: ActiveJob) -> Any:
        return finish(run(job, waiting_from_thread(worker_scope())))

    return run_on_loop if is_coroutine else run_in_thread
