"""One job, from its adder's side: everything that only reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

from orchestration_queue.client.checks import checked_page
from orchestration_queue.client.values import ENDINGS, LOOK_AGAIN_S, Deadline, describe_age
from orchestration_queue.errors import JobNotFoundError
from orchestration_queue.protocol.history import HistoryEntry
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import control, event_log, job_output, job_records
from orchestration_queue.protocol.operations.control import SuspendInfo
from orchestration_queue.protocol.operations.explanation import Explanation, explain
from orchestration_queue.protocol.operations.job_output import StreamEntry
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import epoch_ms, now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncJobReading", "follow_stream"]


async def follow_stream(
    connection: AsyncConnection, keys: QueueKeys, job_id: str, place: str
) -> AsyncIterator[StreamEntry]:
    """Yield the entries after a place, as they come, until the job has finished and all have been read."""
    seen = await connection.look(event_log.last_event_id(keys))
    async with await connection.duplicate() as reader:
        while True:
            # The job before its entries: those of a job that has finished are all that will ever be.
            is_over = await _is_over(reader, keys, job_id)
            page = job_output.read(keys, job_id, place)
            while entries := await reader.run(page, repeatable=True):
                for entry in entries:
                    yield entry
                place = entries[-1].id
                page = job_output.read(keys, job_id, place)
            if is_over:
                return
            seen = await _await_news(reader, keys, job_id, place, seen)


async def _is_over(connection: AsyncConnection, keys: QueueKeys, job_id: str) -> bool:
    record = await connection.run(job_records.job(keys, job_id, ("state",)), repeatable=True)
    return record is None or record.is_finished


async def _await_news(connection: AsyncConnection, keys: QueueKeys, job_id: str, place: str, seen: str) -> str:
    """Wait until there is another entry, or the job may have finished; returns the last event that was seen."""
    wait = Deadline(LOOK_AGAIN_S)
    while not wait.has_passed:
        news = job_output.follow(keys, job_id, place, seen, max(1, round(wait.left * 1000)))
        entries, events = await connection.run(news, repeatable=True)
        seen = events[-1].id if events else seen
        if entries or any(event.job_id == job_id and event.type in ENDINGS for event in events):
            break
    return seen


class AsyncJobReading:
    """What one can see of a job.

    Attributes:
        id: The job's id.
        is_new: False when adding met a job that was already there, by its id or its deduplication id.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        keys: QueueKeys,
        job_id: str,
        record: JobRecord | Callable[[], JobRecord],
        *,
        is_new: bool = False,
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._record = record
        self.id = job_id
        self.is_new = is_new

    def __repr__(self) -> str:
        record = self.record
        age = "" if record.added_at is None else f", added {describe_age(epoch_ms(record.added_at), now_ms())} ago"
        return f"<{type(self).__name__} {self.id} {record.name!r} of queue {self.queue}, {record.state}{age}>"

    @property
    def record(self) -> JobRecord:
        """The job as it was last read; of a job that was just added, as it was sent."""
        if not isinstance(self._record, JobRecord):
            self._record = self._record()
        return self._record

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._keys.queue

    @property
    def name(self) -> str:
        """What kind of job it is: the task's name."""
        return self.record.name

    @property
    def data(self) -> Any:
        """Its payload.

        Raises:
            PayloadError: It was written with another serializer, or is damaged.
        """
        return self.record.data

    @property
    def state(self) -> JobState:
        """Its state when it was last read; see :meth:`read_state` for now."""
        return self.record.state

    @property
    def result(self) -> Any:
        """What its handler returned, as last read; None before that, or if it returned nothing."""
        return self.record.result

    @property
    def failed_reason(self) -> str | None:
        """Why its last attempt failed, as last read."""
        return self.record.failed_reason

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, as last read."""
        return self.record.tags

    @property
    def failure_kind(self) -> str | None:
        """What made its last attempt fail, as last read; None when it has not failed."""
        return self.record.failure_kind

    @property
    def traceback(self) -> str | None:
        """Where its last attempt failed, as last read: the last 8 KiB of the traceback; None when nothing is known."""
        return self.record.traceback

    @property
    def is_tracked(self) -> bool:
        """Whether retention kept it when it was last read; see ``track``."""
        return self.record.is_tracked

    @property
    def history(self) -> tuple[HistoryEntry, ...]:
        """What had happened to it besides success when it was last read, oldest first; the last 20 entries."""
        return self.record.history

    @property
    def attempts(self) -> int:
        """Attempts that had begun when it was last read."""
        return self.record.attempts

    @property
    def ref(self) -> ParentRef:
        """What a job that this one waits for names as its ``parent``."""
        return ParentRef(self._keys, self.id)

    async def refresh(self) -> JobRecord:
        """Read the job again.

        Raises:
            JobNotFoundError: It is not there any more.
        """
        self._record = self._found(await self._connection.look(job_records.job(self._keys, self.id)))
        return self.record

    def _found(self, record: JobRecord | None) -> JobRecord:
        if record is None:
            raise JobNotFoundError(self.queue, self.id)
        return record

    async def explain(self) -> Explanation:
        """Explain why the job is where it is: what it waits for, who has it, or why it failed. Reads the queue.

        Raises:
            JobNotFoundError: It is not there any more.
        """
        found = await self._connection.follow(explain(self._keys, self.id, now_ms()))
        if found is None:
            raise JobNotFoundError(self.queue, self.id)
        return found

    async def read_state(self) -> JobState:
        """Read where the job is now.

        Raises:
            JobNotFoundError: It is not there any more.
        """
        return self._found(await self._connection.look(job_records.job(self._keys, self.id, ("state",)))).state

    async def progress(self) -> Any:
        """Return what its handler last reported; None before that.

        Raises:
            JobNotFoundError: It is not there any more.
        """
        return self._found(
            await self._connection.look(job_records.job(self._keys, self.id, ("id", "progress")))
        ).progress

    async def logs(self, *, limit: int | None = None, offset: int = 0) -> list[str]:
        """Return the lines that its handlers logged: at most ``limit``, after the first ``offset``."""
        return await self._connection.look(job_records.logs(self._keys, self.id, *checked_page(limit, offset)))

    async def children(self) -> list[Self]:
        """Return the jobs that this one waits for, or waited for, as far as they are still there."""
        return await self._jobs(await self._connection.follow(job_records.children(self._keys, self.id)))

    async def parents(self) -> list[Self]:
        """Return the jobs that wait for this one, as far as they are still there."""
        return await self._jobs(await self._connection.follow(job_records.parents(self._keys, self.id)))

    async def _jobs(self, refs: Sequence[ParentRef]) -> list[Self]:
        records = await self._connection.follow(job_records.jobs([(ref.keys, ref.job_id) for ref in refs]))
        found = zip(refs, records, strict=True)
        return [
            type(self)(self._connection, ref.keys, ref.job_id, record) for ref, record in found if record is not None
        ]

    async def children_values(self) -> dict[str, Any]:
        """Return what the jobs that this one waited for returned.

        Returns:
            Result by the child's full name, ``prefix:{queue}:id``. Those without a result, or not kept, are left out.
        """
        values = await self._connection.follow(job_records.children_values(self._keys, self.id))
        return {ref.member: value for ref, value in values}

    async def suspend_info(self) -> SuspendInfo | None:
        """Why and since when the job is suspended; None when it is not."""
        return await self._connection.look(control.suspend_info(self._keys, self.id))

    async def read_stream(self, after: str = job_output.FIRST_ENTRY, count: int = 100) -> list[StreamEntry]:
        """Return what the job's handler has given out, oldest first, without waiting.

        Args:
            after: The ``id`` of the last entry that was read; ``0`` begins at the beginning.
            count: At most this many.

        Raises:
            UsageError: ``after`` is no entry's id, or the count no positive number.
        """
        return await self._connection.look(job_output.read(self._keys, self.id, after, count))

    def stream(self, after: str = job_output.FIRST_ENTRY) -> AsyncIterator[StreamEntry]:
        """Everything the job's handler gives out, as it comes, until the job has finished.

        It also ends without an error when the job fails; :meth:`AsyncJob.wait` says how it ended. Each iterator has a
        connection of its own.

        Args:
            after: The ``id`` of the last entry that was read; ``0`` begins at the beginning.

        Raises:
            UsageError: ``after`` is no entry's id.
            TransportError: The server could not be reached. Go on after the last entry's ``id``.
        """
        return follow_stream(self._connection, self._keys, self.id, job_output.checked_position(after))
