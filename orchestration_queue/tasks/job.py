"""Jobs that were added through a task: their results have the type that the task's function returns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from orchestration_queue.client import AsyncJob, Job
from orchestration_queue.options import Duration

__all__ = ["AsyncTaskJob", "TaskJob"]

J = TypeVar("J", Job, AsyncJob)
R = TypeVar("R")

_DEFAULT_WAIT = timedelta(seconds=30)


class _Handle(Generic[J, R]):
    """What both faces have.

    Attributes:
        job: The job itself, with all that can be done to it.
    """

    def __init__(self, job: J, read: Callable[[Any], Any]) -> None:
        self.job: J = job
        self._read = read

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of queue {self.job.queue}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def is_new(self) -> bool:
        """False when adding met a job that was already there, by its id or its deduplication id."""
        return self.job.is_new


class TaskJob(_Handle[Job, R]):
    """A job of a task. Tasks make these; there is no need to."""

    def wait(self, timeout: Duration | None = _DEFAULT_WAIT) -> R:
        """Wait until the job has finished.

        Args:
            timeout: A duration, or seconds; default 30 s; None waits for ever.

        Returns:
            What the task's function returned.

        Raises:
            JobFailedError: It failed for good, or was removed before it finished.
            JobNotFoundError: It is not there any more: it finished (or was removed) before this call.
            PayloadError: What it returned is not what the function is annotated to return.
            TimeoutError: The time is up. The job goes on.
        """
        result: R = self._read(self.job.wait(timeout))
        return result


class AsyncTaskJob(_Handle[AsyncJob, R]):
    """As :class:`TaskJob`, for coroutines."""

    async def wait(self, timeout: Duration | None = _DEFAULT_WAIT) -> R:  # noqa: ASYNC109  both faces have it
        """As :meth:`TaskJob.wait`."""
        result: R = self._read(await self.job.wait(timeout))
        return result
