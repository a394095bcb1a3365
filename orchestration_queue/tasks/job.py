"""Jobs that were added through a task, whose results have the task's return type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from orchestration_queue.client import AsyncJob, Job
from orchestration_queue.options import Duration

if TYPE_CHECKING:
    from orchestration_queue.client._async.listener import AsyncWatch
    from orchestration_queue.client._sync.listener import Watch

__all__ = ["AsyncTaskJob", "TaskJob"]

R = TypeVar("R")

_DEFAULT_WAIT = timedelta(seconds=30)


class TaskJob(Job, Generic[R]):
    """A job of a task: a :class:`Job` whose result has a type. Returned by tasks.

    Args:
        job: The job.
        read: Returns a stored result with the type in the function's annotation.
    """

    def __init__(self, job: Job, read: Callable[[Any], R]) -> None:
        vars(self).update(vars(job))
        self._read = read

    def wait(self, timeout: Duration | None = _DEFAULT_WAIT, *, watch: Watch | None = None) -> R:
        """Wait until the job has finished.

        Args:
            timeout: A duration, or seconds; default 30 s; None waits forever.
            watch: A watch on the queue that began before the job was added.

        Returns:
            What the task's function returned.

        Raises:
            JobFailedError: The job failed for good, or was removed before it finished.
            JobNotFoundError: The job had finished and was not kept, or was removed, before this call.
            PayloadError: The result doesn't match the function's annotation.
            TimeoutError: The timeout expired. The job continues.
        """
        return self._read(super().wait(timeout, watch=watch))


class AsyncTaskJob(AsyncJob, Generic[R]):
    """A :class:`TaskJob` for coroutines."""

    def __init__(self, job: AsyncJob, read: Callable[[Any], R]) -> None:
        vars(self).update(vars(job))
        self._read = read

    async def wait(
        self,
        timeout: Duration | None = _DEFAULT_WAIT,  # noqa: ASYNC109  both faces have it
        *,
        watch: AsyncWatch | None = None,
    ) -> R:
        """Wait as :meth:`TaskJob.wait` does."""
        return self._read(await super().wait(timeout, watch=watch))
