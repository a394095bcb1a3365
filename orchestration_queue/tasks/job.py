"""Jobs that were added through a task: their results have the type that the task's function returns."""

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
    """A job of a task: a :class:`Job` whose result has a type. Returned by tasks, not made by users.

    Args:
        job: The job.
        read: Returns a stored result as the task's function is annotated to return it.
    """

    def __init__(self, job: Job, read: Callable[[Any], R]) -> None:
        vars(self).update(vars(job))
        self._read = read

    def wait(self, timeout: Duration | None = _DEFAULT_WAIT, *, watch: Watch | None = None) -> R:
        """Wait until the job has finished.

        Args:
            timeout: A duration, or seconds; default 30 s; None waits without limit.
            watch: A watch on the queue that began before the job was added.

        Returns:
            What the task's function returned.

        Raises:
            JobFailedError: It failed for good, or was removed before it finished.
            JobNotFoundError: It is not there any more: it finished (or was removed) before this call.
            PayloadError: What it returned is not what the function is annotated to return.
            TimeoutError: The time is up. The job goes on.
        """
        return self._read(super().wait(timeout, watch=watch))


class AsyncTaskJob(AsyncJob, Generic[R]):
    """As :class:`TaskJob`, for coroutines."""

    def __init__(self, job: AsyncJob, read: Callable[[Any], R]) -> None:
        vars(self).update(vars(job))
        self._read = read

    async def wait(
        self,
        timeout: Duration | None = _DEFAULT_WAIT,  # noqa: ASYNC109  both faces have it
        *,
        watch: AsyncWatch | None = None,
    ) -> R:
        """As :meth:`TaskJob.wait`."""
        return self._read(await super().wait(timeout, watch=watch))
