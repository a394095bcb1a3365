"""The running job, for code that doesn't receive it as a parameter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from orchestration_queue.errors import UsageError
from orchestration_queue.worker import ActiveJob, AsyncActiveJob

__all__ = ["JOB_TYPES", "RunningJob", "current_job", "job_or_none", "running"]

RunningJob: TypeAlias = ActiveJob | AsyncActiveJob
"""An :class:`ActiveJob` in a plain function, an :class:`AsyncActiveJob` in a coroutine function."""

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
