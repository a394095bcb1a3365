"""The queue, from the side of those who add jobs and look after them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from orchestration_queue.client._async.channel import AsyncChannel, AsyncClient
from orchestration_queue.client._async.events import AsyncQueueEvents
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.schedulers import AsyncJobSchedulers
from orchestration_queue.client.values import NO_OPTIONS, NewJob, encode_data
from orchestration_queue.errors import JobNotFoundError, ServerError, UsageError
from orchestration_queue.options import JobOptions, milliseconds
from orchestration_queue.protocol.call import Call, Operation
from orchestration_queue.protocol.codec import find_codec
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import adding, control, reading, working
from orchestration_queue.protocol.operations.adding import Added, Addition
from orchestration_queue.protocol.operations.reading import JobCounts
from orchestration_queue.protocol.operations.searching import queue_names
from orchestration_queue.protocol.operations.steps import all_good
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import TERMINAL, JobState

__all__ = ["AsyncQueue"]

T = TypeVar("T")


class AsyncQueue(AsyncClient):
    """A queue of jobs. Connects when first needed.

    Args:
        name: The queue's name: up to 256 characters, without ``:`` ``{`` ``}``.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.
        codec: How the jobs' data are written: ``json``; ``gzip`` packs the JSON, which every reader of this wire
            detects; ``msgpack`` also carries bytes and datetimes, but Node's readers see it as unreadable; or one of
            your own, from :func:`register_codec`.
        emit_events: Tell listeners of jobs being added; False saves the server an entry a job.

    Raises:
        InvalidNameError: The wire cannot carry the queue's name.
        UsageError: Both ``url`` and ``connection`` are given, or there is no such codec.

    Attributes:
        schedulers: The queue's repeatable jobs.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        connection: AsyncConnection | AsyncChannel | None = None,
        prefix: str = DEFAULT_PREFIX,
        codec: str = "json",
        emit_events: bool = True,
    ) -> None:
        super().__init__(url, connection)
        self.name = name
        self.keys = QueueKeys(name, prefix)
        self.schedulers = AsyncJobSchedulers(name, connection=self._channel, prefix=prefix)
        self._codec = find_codec(codec)
        self._skip_events = not emit_events

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @classmethod
    async def names(
        cls, *, url: str | None = None, connection: AsyncConnection | None = None, prefix: str = DEFAULT_PREFIX
    ) -> list[str]:
        """Names of all queues that were ever used under a key prefix, sorted. Walks all keys."""
        channel = AsyncChannel(url, connection)
        try:
            primaries = await (await channel.connection()).primaries()
        finally:
            await channel.close()
        names: set[str] = set()
        for primary in primaries:
            async with await AsyncConnection.open(primary, libraries=()) as one:
                names.update(await AsyncChannel(connection=one).follow(queue_names(prefix)))
        return sorted(names)

    async def add(
        self, name: str, data: Any = None, options: JobOptions | None = None, *, parent: ParentRef | None = None
    ) -> AsyncJob:
        """Add a job.

        Args:
            name: What kind of job it is: the task's name.
            data: Its payload, anything JSON can say.
            options: How it is placed, retried, limited and kept; default: at once, once, kept.
            parent: The job that waits for it, from :attr:`AsyncJob.ref`.

        Returns:
            The job. When its id or deduplication id was there already, the job that stands for it, with
            ``is_new`` False; then nothing was added.

        Raises:
            UsageError: Name, data or options are such that the wire cannot carry them.
        """
        at_ms = now_ms()
        job = self._addition(NewJob(name, data, options or NO_OPTIONS, parent))
        added = await self._channel.run(self._adding(job, at_ms))
        if parent is not None:
            await self._channel.pipeline(self._joining([(job, added)]))
        if added.is_new and added.job_id is not None:
            return self._sent(added.job_id, job, at_ms)
        return (await self._standing([(job, added)]))[0]

    async def add_bulk(self, jobs: Sequence[NewJob]) -> list[AsyncJob]:
        """Add many jobs, about 1,000 to a trip. All are checked before the first is sent.

        Returns:
            A job for each given, in the same order; those that were there already have ``is_new`` False.

        Raises:
            UsageError: A job's name, data or options are such that the wire cannot carry them; none was added.
            ServerError: The server refused a job; others may have been added.
        """
        at_ms = now_ms()
        ready = [self._addition(new) for new in jobs]
        done: list[AsyncJob] = []
        for portion in adding.portions(ready):
            try:
                outcomes = list(zip(portion, await self._add_portion(portion, at_ms), strict=True))
            except ServerError as error:
                raise ServerError(
                    f"The server refused a job after at least {len(done)} of {len(ready)} were added: {error}"
                ) from error
            await self._channel.pipeline(self._joining(outcomes))
            standing = iter(await self._standing([pair for pair in outcomes if not pair[1].is_new]))
            done += [
                self._sent(added.job_id, job, at_ms) if added.is_new and added.job_id else next(standing)
                for job, added in outcomes
            ]
        return done

    async def _add_portion(self, jobs: Sequence[Addition], at_ms: int) -> list[Added]:
        if all(job.is_plain for job in jobs):
            return await self._channel.run(adding.add_many(self.keys, jobs, at_ms, skip_events=self._skip_events))
        operations = [self._adding(job, at_ms) for job in jobs]
        replies = await self._channel.pipeline([operation.call for operation in operations])
        return [operation.read(reply) for operation, reply in zip(operations, all_good(replies), strict=True)]

    def _addition(self, new: NewJob) -> Addition:
        encoded = encode_data(new.name, new.data, self._codec)
        return Addition(new.name, encoded, new.options, new.parent)

    def _adding(self, job: Addition, at_ms: int) -> Operation[Added]:
        return adding.add(self.keys, job, at_ms, skip_events=self._skip_events)

    def _sent(self, job_id: str, job: Addition, at_ms: int) -> AsyncJob:
        record = partial(adding.as_sent, job_id, job, at_ms)
        return AsyncJob(self._channel, self.keys, job_id, record, is_new=True)

    def _joining(self, outcomes: Sequence[tuple[Addition, Added]]) -> list[Call]:
        """What tells parents of other queues; those of this queue were told when the job was added."""
        return [
            adding.join_parent(job.parent, self.keys.member(added.job_id))
            for job, added in outcomes
            if job.parent is not None and job.parent.keys != self.keys and added.is_new and added.job_id is not None
        ]

    async def _standing(self, outcomes: Sequence[tuple[Addition, Added]]) -> list[AsyncJob]:
        """The jobs that were there already."""
        ids: list[str] = []
        for job, added in outcomes:
            if added.job_id is not None:
                ids.append(added.job_id)
            elif job.options.deduplication is not None:
                ids.append(await self._channel.look(adding.standing_job(self.keys, job.options.deduplication.id)))
        records = await self._channel.follow(reading.jobs([(self.keys, job_id) for job_id in ids]))
        # A job that was removed in this very moment is still the one that stood in the way.
        return [self._job(record or JobRecord(job_id, {})) for job_id, record in zip(ids, records, strict=True)]

    def _job(self, record: JobRecord) -> AsyncJob:
        return AsyncJob(self._channel, self.keys, record.id, record)

    async def get_job(self, job_id: str) -> AsyncJob:
        """The job of that id.

        Raises:
            JobNotFoundError: There is none.
        """
        record = await self._channel.look(reading.job(self.keys, job_id))
        if record is None:
            raise JobNotFoundError(self.name, job_id)
        return self._job(record)

    async def get_jobs(self, state: JobState | str, start: int = 0, end: int = -1) -> list[AsyncJob]:
        """The jobs in one state.

        Args:
            state: ``waiting`` (in the order in which workers take them), ``active``, ``delayed`` (with prioritized),
                ``completed``, ``failed`` or ``suspended`` (these oldest first).
            start: First place, from 0.
            end: Last place, inclusive; -1 stands for the last.

        Raises:
            UsageError: There is no such state or range, or the wire keeps no list of that state.
        """
        ids = await self._channel.follow(reading.job_ids(self.keys, _state(state), start, end))
        records = await self._channel.follow(reading.jobs([(self.keys, job_id) for job_id in ids]))
        return [self._job(record) for record in records if record is not None]

    async def counts(self) -> JobCounts:
        """How many jobs are waiting, active, delayed, completed and failed."""
        return await self._channel.follow(reading.counts(self.keys))

    async def pause(self) -> None:
        """Ask the workers to take no more jobs. Running jobs go on. Node's workers never listen."""
        await self._channel.run(control.pause(self.keys))

    async def resume(self) -> None:
        """Let the workers take jobs again."""
        await self._channel.run(control.resume(self.keys))

    async def is_paused(self) -> bool:
        """Whether the queue is paused."""
        return await self._channel.look(working.is_paused(self.keys))

    async def remove(self, job_id: str) -> bool:
        """Remove a job, wherever it is; False when there is none. A running handler is not stopped."""
        return await self._channel.run(control.remove(self.keys, job_id))

    async def retry_jobs(self, count: int = 0) -> int:
        """Give failed jobs all their attempts again, oldest first.

        Args:
            count: At most this many; 0 means all.

        Returns:
            How many were retried.

        Raises:
            UsageError: The count is negative, or no whole number.
        """
        return await self._channel.run(control.retry_jobs(self.keys, _count(count), now_ms()))

    async def clean(self, grace: timedelta, limit: int = 1000, state: JobState | str = JobState.COMPLETED) -> list[str]:
        """Remove jobs that finished longer ago than ``grace``, oldest first.

        Args:
            grace: How long they are kept.
            limit: At most this many.
            state: ``completed`` or ``failed``.

        Returns:
            The removed jobs' ids.

        Raises:
            UsageError: The grace or limit is negative, or jobs in that state have not finished.
        """
        if grace < timedelta(0):
            raise UsageError(f"A grace of {grace.total_seconds():g} s lies in the future; pass 0 or more.")
        if (finished := _state(state)) not in TERMINAL:
            raise UsageError(f"Jobs that are {finished} have not finished; clean completed or failed ones.")
        cutoff_ms = now_ms() - milliseconds(grace)
        return await self._channel.run(control.clean(self.keys, finished, cutoff_ms, _count(limit)))

    async def drain(self, *, delayed: bool = False) -> int:
        """Remove every job that is ready, and with ``delayed`` those that are due later; returns how many."""
        return await self._channel.run(control.drain(self.keys, delayed=delayed))

    def events(self, after: str = "$") -> AsyncQueueEvents:
        """What happens in the queue, as it happens; see :class:`AsyncQueueEvents`."""
        return AsyncQueueEvents(self.name, connection=self._channel, prefix=self.keys.prefix, after=after)


def _state(state: JobState | str) -> JobState:
    try:
        return JobState(state)
    except ValueError:
        raise UsageError(f"{state!r} is no state of a job; the states are {', '.join(JobState)}.") from None


def _count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UsageError(f"{count!r} is no number of jobs; count must be a non-negative integer.")
    return count
