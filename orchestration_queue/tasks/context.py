"""The job whose task runs here, for code that no parameter reaches."""

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
"""What asks for the running job, as a parameter's annotation or as a provider."""

_current: ContextVar[RunningJob | None] = ContextVar("oq_current_job", default=None)


def current_job() -> RunningJob:
    """Return the job whose task runs here: on this thread, or in this asyncio task and those it has started.

    Raises:
        UsageError: No job runs here.
    """
    if (job := _current.get()) is None:
        raise UsageError("No job runs here; call current_job() from a task that a worker runs.")
    return job


def job_or_none() -> RunningJob | None:
    """As :func:`current_job`; None when no job runs here."""
    return _current.get()


@contextmanager
def running(job: RunningJob) -> Iterator[None]:
    """Make a job the current one."""
    token = _current.set(job)
    try:
        yield
    finally:
        _current.reset(token)
