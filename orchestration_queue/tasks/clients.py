"""The queues that tasks add their jobs to, and the jobs that they return, whose results have the task's return type."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from orchestration_queue.client import AsyncJob, AsyncQueue, Job, Queue
from orchestration_queue.options import Duration
from orchestration_queue.protocol.codec import find_codec
from orchestration_queue.server import AsyncConnection, Connection

if TYPE_CHECKING:
    from orchestration_queue.client._async.listener import AsyncWatch
    from orchestration_queue.client._sync.listener import Watch

__all__ = ["AsyncTaskJob", "Clients", "TaskJob"]

C = TypeVar("C")
Q = TypeVar("Q")
R = TypeVar("R")

_DEFAULT_WAIT = timedelta(seconds=30)


@dataclass(slots=True)
class _Open(Generic[C, Q]):
    """A connection, and the queues that use it."""

    connection: C
    queues: dict[str, Q] = field(default_factory=dict)


class Clients:
    """Queues of one server, by name. Sync code shares one connection, the coroutines of each event loop another.

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        prefix: First part of every key.
        codec: How job data are written.

    Raises:
        UsageError: There is no such codec.
    """

    def __init__(self, url: str | None, prefix: str, codec: str) -> None:
        self._url = url
        self._prefix = prefix
        self._codec = find_codec(codec).name
        self._lock = Lock()
        self._plain: _Open[Connection, Queue] | None = None
        self._loops: dict[asyncio.AbstractEventLoop, _Open[AsyncConnection, AsyncQueue]] = {}

    def queue(self, name: str) -> Queue:
        """Return the queue with this name, for sync code."""
        with self._lock:
            opened = self._plain = self._plain or _Open(Connection(self._url))
            if name not in opened.queues:
                opened.queues[name] = Queue(name, connection=opened.connection, prefix=self._prefix, codec=self._codec)
            return opened.queues[name]

    def async_queue(self, name: str) -> AsyncQueue:
        """Return the queue with this name, for coroutines of the running event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if (opened := self._loops.get(loop)) is None:
                # A closed event loop can send nothing, so its connection can't be closed in order.
                self._loops = {known: kept for known, kept in self._loops.items() if not known.is_closed()}
                opened = self._loops[loop] = _Open(AsyncConnection(self._url))
            if name not in opened.queues:
                opened.queues[name] = AsyncQueue(
                    name, connection=opened.connection, prefix=self._prefix, codec=self._codec
                )
            return opened.queues[name]

    def close(self) -> None:
        """Close the connection of sync code. A later call opens another."""
        with self._lock:
            opened, self._plain = self._plain, None
        if opened is not None:
            opened.connection.close()

    async def aclose(self) -> None:
        """Close the connection of the running event loop. A later call opens another."""
        with self._lock:
            opened = self._loops.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.connection.aclose()


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
