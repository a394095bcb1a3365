"""What a handler is given: the job it runs, and how to speak of it while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, TypeVar

from orchestration_queue.flows.plan import split_job_id
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import optional_text
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import working
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection

__all__ = ["ActiveJob", "AsyncActiveJob"]

T = TypeVar("T")


class _Facts:
    """What both faces know without asking the server."""

    def __init__(self, record: JobRecord, queue: str) -> None:
        self.record = record
        self.queue = queue
        self._must_stop = False

    @property
    def id(self) -> str:
        """The job's id."""
        return self.record.id

    @property
    def name(self) -> str:
        """What kind of job it is: the task's name."""
        return self.record.name

    @property
    def data(self) -> Any:
        """The payload it was added with."""
        return self.record.data

    @property
    def attempt(self) -> int:
        """Which try this is: 1 for the first."""
        return self.record.attempts_made + 1

    @property
    def added_at(self) -> datetime | None:
        """When it was added."""
        return self.record.added_at

    @property
    def should_stop(self) -> bool:
        """True once the worker gave the job up (its time is over, or the worker must leave): end soon."""
        return self._must_stop

    def request_stop(self) -> None:
        """Ask the handler to end soon."""
        self._must_stop = True


class AsyncActiveJob(_Facts):
    """The running job, for a handler that is a coroutine."""

    def __init__(self, record: JobRecord, keys: QueueKeys, connection: AsyncConnection) -> None:
        super().__init__(record, keys.queue)
        self._keys = keys
        self._connection = connection

    async def log(self, text: str, *more: str) -> None:
        """Append a line to the job's log, or several in one trip.

        Raises:
            PayloadError: A line is larger than 1 MiB.
        """
        lines = (text, *more)
        for line in lines:
            codec.encode(line, "Log line")
        await self._connection.execute(working.log_lines(self._keys, self.id, lines))

    async def update_progress(self, progress: Any) -> None:
        """Store how far the job is, a number or any JSON, and tell those who listen.

        Raises:
            PayloadError: It is not JSON, or larger than 1 MiB.
        """
        encoded = codec.encode(progress, "Progress")
        await self._connection.pipeline(working.report_progress(self._keys, self.id, encoded))

    async def upstream_results(self) -> dict[str, Any]:
        """What the jobs before this one returned.

        Returns:
            Result by node name for jobs of the same flow, else by job id. Jobs that returned nothing are left out.
        """
        members = await self._connection.run(working.upstream_members(self._keys, self.id))
        replies = await self._connection.pipeline([working.upstream_result(member) for member in members])
        stored = {member: optional_text(reply) for member, reply in zip(members, replies, strict=True)}
        return {
            self._upstream_name(member): codec.decode(result, "The upstream result")
            for member, result in stored.items()
            if result is not None
        }

    def _upstream_name(self, member: str) -> str:
        job_id = member.rpartition(":")[2]
        mine, other = split_job_id(self.id), split_job_id(job_id)
        return other[1] if mine and other and mine[0] == other[0] else job_id


class ActiveJob(_Facts):
    """The running job, for a handler that is a plain function in a thread."""

    def __init__(self, job: AsyncActiveJob, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(job.record, job.queue)
        self._job = job
        self._loop = loop

    @property
    def should_stop(self) -> bool:
        """As :attr:`AsyncActiveJob.should_stop`."""
        return self._job.should_stop

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def log(self, text: str, *more: str) -> None:
        """As :meth:`AsyncActiveJob.log`."""
        self._wait(self._job.log(text, *more))

    def update_progress(self, progress: Any) -> None:
        """As :meth:`AsyncActiveJob.update_progress`."""
        self._wait(self._job.update_progress(progress))

    def upstream_results(self) -> dict[str, Any]:
        """As :meth:`AsyncActiveJob.upstream_results`."""
        return self._wait(self._job.upstream_results())
