"""A handle on one job: everything that only reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

from orchestration_queue.client.checks import check_page
from orchestration_queue.client.values import ENDINGS, LOOK_AGAIN_S, Deadline, describe_age
from orchestration_queue.errors import JobNotFoundError
from orchestration_queue.protocol.history import HistoryEntry
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_output, job_records, steps, suspension
from orchestration_queue.protocol.operations.explanation import Explanation, explain
from orchestration_queue.protocol.operations.job_output import StreamEntry
from orchestration_queue.protocol.operations.steps import JobStep
from orchestration_queue.protocol.operations.suspension import SuspendInfo
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import epoch_ms, now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncJobReading", "follow_stream"]


async def follow_stream(
    connection: AsyncConnection, keys: QueueKeys, job_id: str, place: str
) -> AsyncIterator[StreamEntry]:
    """Yield the entries after a given one as they are written, until the job has finished and all have been read."""
    seen = await connection.look(event_log.last_event_id(keys))
    async with await connection.duplicate() as reader:
        while True:
            # Read the job before its entries: once it has finished, no more entries follow.
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
    """Wait until there is another entry, or the job may have finished; return the id of the last event read."""
    wait = Deadline(LOOK_AGAIN_S)
    while not wait.has_passed:
        news = job_output.follow(keys, job_id, place, seen, max(1, round(wait.left * 1000)))
        entries, events = await connection.run(news, repeatable=True)
        seen = events[-1].id if events else seen
        if entries or any(event.job_id == job_id and event.type in ENDINGS for event in events):
            break
    return seen


class AsyncJobReading:
    """The readable side of a job.

    Attributes:
        id: The job's id.
        is_new: False if adding it found an existing job with its id or deduplication id.
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
        """The job as last read; after adding it, as it was sent."""
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
        """Its state when last read; :meth:`read_state` reads the current one."""
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
        """The kind of failure of its last attempt, as last read; None if it has not failed."""
        return self.record.failure_kind

    @property
    def traceback(self) -> str | None:
        """The last 8 KiB of the traceback of its last failed attempt, as last read; None without a failure."""
        return self.record.traceback

    @property
    def is_tracked(self) -> bool:
        """Whether it was tracked when last read; see ``track``."""
        return self.record.is_tracked

    @property
    def history(self) -> tuple[HistoryEntry, ...]:
        """The last 20 entries of its history, oldest first, as last read: everything except success."""
        return self.record.history

    @property
    def attempts(self) -> int:
        """How many attempts had started when it was last read."""
        return self.record.attempts

    @property
    def ref(self) -> ParentRef:
        """The reference to pass as ``parent`` of jobs that this one should wait for."""
        return ParentRef(self._keys, self.id)

    async def refresh(self) -> JobRecord:
        """Read the job again.

        Raises:
            JobNotFoundError: The job no longer exists.
        """
        self._record = self._require(await self._connection.look(job_records.job(self._keys, self.id)))
        return self.record

    def _require(self, record: JobRecord | None) -> JobRecord:
        if record is None:
            raise JobNotFoundError(self.queue, self.id)
        return record

    async def explain(self) -> Explanation:
        """Explain the job's state: what it waits for, which worker has it, or why it failed. Reads the queue.

        Raises:
            JobNotFoundError: The job no longer exists.
        """
        found = await self._connection.follow(explain(self._keys, self.id, now_ms()))
        if found is None:
            raise JobNotFoundError(self.queue, self.id)
        return found

    async def read_state(self) -> JobState:
        """Read the job's current state.

        Raises:
            JobNotFoundError: The job no longer exists.
        """
        return self._require(await self._connection.look(job_records.job(self._keys, self.id, ("state",)))).state

    async def progress(self) -> Any:
        """Return the progress that its handler last reported; None before that.

        Raises:
            JobNotFoundError: The job no longer exists.
        """
        return self._require(
            await self._connection.look(job_records.job(self._keys, self.id, ("id", "progress")))
        ).progress

    async def logs(self, *, limit: int | None = None, offset: int = 0) -> list[str]:
        """Return up to ``limit`` lines that its handlers logged, after the first ``offset``."""
        return await self._connection.look(job_records.logs(self._keys, self.id, *check_page(limit, offset)))

    async def children(self) -> list[Self]:
        """Return the jobs that this one waits or waited for, if they still exist."""
        return await self._jobs(await self._connection.follow(job_records.children(self._keys, self.id)))

    async def parents(self) -> list[Self]:
        """Return the jobs that wait for this one, if they still exist."""
        return await self._jobs(await self._connection.follow(job_records.parents(self._keys, self.id)))

    async def _jobs(self, refs: Sequence[ParentRef]) -> list[Self]:
        records = await self._connection.follow(job_records.jobs([(ref.keys, ref.job_id) for ref in refs]))
        found = zip(refs, records, strict=True)
        return [
            type(self)(self._connection, ref.keys, ref.job_id, record) for ref, record in found if record is not None
        ]

    async def children_values(self) -> dict[str, Any]:
        """Return the results of the jobs that this one waited for.

        Returns:
            Results by the child's full name, ``prefix:{queue}:id``. Children without a result, or not kept, are
            omitted.
        """
        values = await self._connection.follow(job_records.children_values(self._keys, self.id))
        return {ref.member: value for ref, value in values}

    async def steps(self) -> list[JobStep]:
        """Return the job's durable steps, without results, in the order in which they were stored."""
        return await self._connection.follow(steps.read_steps(self._keys, self.id))

    async def suspend_info(self) -> SuspendInfo | None:
        """Return why and since when the job is suspended; None if it is not."""
        return await self._connection.look(suspension.suspend_info(self._keys, self.id))

    async def read_stream(self, after: str = job_output.FIRST_ENTRY, count: int = 100) -> list[StreamEntry]:
        """Return entries of the job's output stream, oldest first, without waiting.

        Args:
            after: The ``id`` of the last entry that was read; ``0`` starts from the first.
            count: At most this many.

        Raises:
            UsageError: ``after`` is not an entry id, or ``count`` is not positive.
        """
        return await self._connection.look(job_output.read(self._keys, self.id, after, count))

    def stream(self, after: str = job_output.FIRST_ENTRY) -> AsyncIterator[StreamEntry]:
        """Yield the entries of the job's output stream as they are written, until the job has finished.

        If the job fails, the iterator ends without an error; :meth:`AsyncJob.wait` returns the outcome. Each iterator
        has its own connection.

        Args:
            after: The ``id`` of the last entry that was read; ``0`` starts from the first.

        Raises:
            UsageError: ``after`` is not an entry id.
            TransportError: The server was unreachable. Resume after the last entry's ``id``.
        """
        return follow_stream(self._connection, self._keys, self.id, job_output.check_position(after))
