"""Add jobs to one queue: the base of all clients that do, and a producer that does nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from orchestration_queue.client import headers
from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client.checks import check_flag, check_items
from orchestration_queue.client.durability import (
    Durability,
    GivenDurability,
    check_durability,
    confirmation,
    read_confirmation,
)
from orchestration_queue.client.headers import with_headers
from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Call, Operation, Reply, all_good
from orchestration_queue.protocol.codec import encode, find_codec
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.operations import additions, job_records
from orchestration_queue.protocol.operations.additions import (
    Added,
    EncodedData,
    GivenOptions,
    GivenParent,
    NewJob,
    Outcome,
)
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncAdder", "AsyncProducer", "Placed", "require_placed"]

T = TypeVar("T")


class Placed(NamedTuple):
    """A job that the server added, or already had. A tuple, since one is built per job.

    Attributes:
        job: The job as it was sent.
        added: The server's reply.
        at_ms: When it was sent.
    """

    job: NewJob
    added: Added
    at_ms: int


def _place_accepted(jobs: Sequence[NewJob], outcomes: Sequence[Outcome | None], at_ms: int) -> list[Placed]:
    """Return the jobs that the server added, or already had."""
    pairs = zip(jobs, outcomes, strict=False)
    return [Placed(job, outcome, at_ms) for job, outcome in pairs if isinstance(outcome, Added)]


def require_placed(jobs: Sequence[NewJob], outcomes: Sequence[Outcome | None], at_ms: int) -> list[Placed]:
    """Return all jobs with their outcomes. None, or a missing outcome, is a job that was not sent after a refusal.

    Raises:
        ServerError: A job was refused.
    """
    placed = _place_accepted(jobs, outcomes, at_ms)
    for place, outcome in enumerate(outcomes):
        if outcome is not None and not isinstance(outcome, Added):
            raise ServerError(
                f"Job {place} of {len(jobs)}, counted from 0, was refused, and {len(placed)} others were added: "
                f"{outcome}"
            ) from outcome
    return placed


class AsyncAdder(AsyncQueueClient):
    """A client that adds jobs to one queue.

    Args:
        name: The queue's name: up to 256 characters, without ``:`` ``{`` ``}``.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open when the client is closed.
        prefix: First part of every key.
        codec: How job data are written.
        emit_events: Emit an event for each job that is added. Disable to save one stream entry per job.
        durability: ``primary`` returns once the primary has the job, ``replicated`` once a replica has it, too.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: Both ``url`` and ``connection`` are given, or there is no such codec.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        codec: str = "json",
        emit_events: bool = True,
        durability: GivenDurability = "primary",
    ) -> None:
        super().__init__(name, url=url, connection=connection, prefix=prefix)
        self._durability = check_durability(durability)
        self._codec = find_codec(codec)
        self._skip_events = not check_flag(emit_events, "emit_events")

    def _encode(self, job: NewJob) -> NewJob:
        if isinstance(job.data, EncodedData):
            return job
        options = with_headers(self.name, job.name, job.options) if headers.sources else job.options
        data = encode(job.data, f"The data of job {job.name!r}", self._codec)
        return NewJob(job.name, EncodedData(data), options, job.parent)

    async def _place(self, job: NewJob, durability: GivenDurability | None = None) -> Placed:
        """Add one job in one exchange, or two if its parent is in another queue."""
        wanted = self._durability_of(durability)
        job = self._encode(job)
        at_ms = now_ms()
        operation = additions.add(self.keys, job, at_ms, skip_events=self._skip_events)
        if wanted is None and not additions.is_unannounced(job.options):
            added = operation.read(await self._connection.execute(operation.call))
        else:
            added = await self._write(operation, wanted, [job])
        placed = Placed(job, added, at_ms)
        if job.parent is not None:
            all_good(await self._connection.pipeline(self._join_calls([placed])))
        return placed

    async def _write(self, operation: Operation[T], durability: Durability, jobs: Sequence[NewJob]) -> T:
        """Add the jobs in one request, which also wakes an idle worker for jobs that no stream entry announces."""
        wake = self._wake_calls(jobs)
        calls = [operation.call, *wake, *confirmation(self.keys, durability)]
        replies = await self._connection.pipeline(calls)
        (reply,), confirmed = all_good(replies[:1]), replies[1 + len(wake) :]
        result = operation.read(reply)
        read_confirmation(self.keys, durability, confirmed)
        return result

    def _wake_calls(self, jobs: Sequence[NewJob]) -> list[Call]:
        return additions.waking(self.keys, jobs, now_ms())

    async def _place_all(self, new: Sequence[NewJob], durability: GivenDurability | None = None) -> list[Placed]:
        """Add many jobs, 100 per call.

        Raises:
            ServerError: A job was refused. All jobs before it, and some or all after it, were added and their parents
                notified.
        """
        wanted = self._durability_of(durability)
        jobs = [self._encode(job) for job in check_items(new, NewJob, "jobs")]
        at_ms = now_ms()
        return require_placed(jobs, await self._add_all(jobs, at_ms, wanted), at_ms)

    def _durability_of(self, durability: GivenDurability | None) -> Durability:
        return self._durability if durability is None else check_durability(durability)

    async def _add_all(self, jobs: Sequence[NewJob], at_ms: int, durability: Durability) -> list[Outcome]:
        """Add encoded jobs; return an outcome for each one up to the last that was sent."""
        portions = list(additions.portions(jobs))
        if jobs and all(job.is_plain for job in jobs):
            calls = (self._portion_calls(portion, at_ms, durability) for portion in portions)
            answers = await self._connection.pipelines(calls)  # each is built while the server works on the last
            answered = zip(portions, answers, strict=False)  # none is sent after a refusal
            return [one for some, replies in answered for one in self._read_portion(some, iter(replies), durability)]
        outcomes: list[Outcome] = []
        for portion in portions:
            outcomes += (added := await self._add_each(portion, at_ms, durability))
            all_good(await self._connection.pipeline(self._join_calls(_place_accepted(portion, added, at_ms))))
            if not all(isinstance(outcome, Added) for outcome in added):
                break
        return outcomes

    def _portion_calls(self, portion: Sequence[NewJob], at_ms: int, durability: Durability) -> list[Call]:
        """Return what adds plain jobs: one call for all, then calls that wake workers and wait for replicas."""
        many = additions.add_many(self.keys, portion, at_ms, skip_events=self._skip_events)
        return [many.call, *self._wake_calls(portion), *confirmation(self.keys, durability)]

    def _read_portion(
        self, portion: Sequence[NewJob], replies: Iterator[Reply], durability: Durability
    ) -> Sequence[Outcome]:
        """Consume and read the replies to :meth:`_portion_calls`."""
        added = next(replies)
        rest = list(islice(replies, len(self._wake_calls(portion)) + len(confirmation(self.keys, durability))))
        if isinstance(added, ServerError):
            return [added] * len(portion)
        outcomes = additions.read_each(self.keys, portion, added)
        read_confirmation(self.keys, durability, rest[len(self._wake_calls(portion)) :])
        return outcomes

    async def _add_each(self, jobs: Sequence[NewJob], at_ms: int, durability: Durability) -> list[Outcome]:
        """Add jobs with a call each, in one exchange."""
        calls = [additions.add(self.keys, job, at_ms, skip_events=self._skip_events).call for job in jobs]
        wake = self._wake_calls(jobs)
        replies = await self._connection.pipeline([*calls, *wake, *confirmation(self.keys, durability)])
        outcomes = additions.read_each(self.keys, jobs, replies[: len(jobs)])
        read_confirmation(self.keys, durability, replies[len(jobs) + len(wake) :])
        return outcomes

    def _join_calls(self, outcomes: Sequence[Placed]) -> list[Call]:
        """Return calls that register the jobs with parents in other queues; adding registered them in this one."""
        return [
            additions.join_parent(parent, self.keys.member(placed.added.job_id))
            for placed in outcomes
            if (parent := placed.job.parent) and parent.keys != self.keys
            if placed.added.is_new and placed.added.job_id is not None
        ]

    async def _jobs(self, outcomes: Sequence[Placed]) -> list[AsyncJob]:
        """Return the jobs that were added, and those that already existed, which takes one or two exchanges."""
        old = [placed for placed in outcomes if not placed.added.is_new]
        existing = iter(await self._find_existing(old) if old else ())
        return [self._job_as_sent(placed) or next(existing) for placed in outcomes]

    def _job_as_sent(self, placed: Placed) -> AsyncJob | None:
        """Return the job as it was sent; None if it already existed."""
        if not placed.added.is_new or (job_id := placed.added.job_id) is None:
            return None
        record = partial(additions.as_sent, job_id, placed.job, placed.at_ms)
        return AsyncJob(self._connection, self.keys, job_id, record, is_new=True)

    async def _find_existing(self, outcomes: Sequence[Placed]) -> list[AsyncJob]:
        ids: list[str] = []
        for placed in outcomes:
            if placed.added.job_id is not None:
                ids.append(placed.added.job_id)
            elif (dedup := placed.job.options.deduplication) is not None:
                ids.append(await self._connection.look(additions.deduplicated_job(self.keys, dedup.id)))
        records = await self._connection.follow(job_records.jobs([(self.keys, job_id) for job_id in ids]))
        # The deduplication id belongs to this job even if it was removed just now.
        return [self._job(record or JobRecord(job_id, {})) for job_id, record in zip(ids, records, strict=True)]


class AsyncProducer(AsyncAdder):
    """Adds jobs to a queue and returns their ids. It imports only what that needs, and reads nothing back.

    Keep one for the life of the process, so that a serverless function connects once and not with every call::

        producer = AsyncProducer("emails")

        async def handler(event):
            return await producer.add("send", event)

    Args:
        name: The queue's name: up to 256 characters, without ``:`` ``{`` ``}``.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open when the producer is closed.
        prefix: First part of every key.
        codec: How job data are written, as for :class:`AsyncQueue`.
        emit_events: Emit an event for each job. Disable to save one stream entry per job.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: Both ``url`` and ``connection`` are given, or there is no such codec.
    """

    async def add(
        self,
        name: str,
        data: Any = None,
        options: GivenOptions = None,
        *,
        parent: GivenParent = None,
        durability: GivenDurability | None = None,
    ) -> str | None:
        """Add a job in one exchange. The arguments are those of :meth:`AsyncQueue.add`.

        Returns:
            The new job's id. None if a job with its id or deduplication id already existed; nothing was added.

        Raises:
            UsageError: The name, the data or an option is invalid.
            NotReplicatedError: Too few replicas confirmed the job in time; the primary has it.
        """
        placed = await self._place(NewJob(name, data, options, parent), durability)
        return placed.added.job_id if placed.added.is_new else None

    async def add_bulk(self, jobs: Sequence[NewJob], *, durability: GivenDurability | None = None) -> list[str | None]:
        """Add many jobs, 100 per exchange. All are checked before the first is sent.

        Returns:
            For each job given, in the same order, its id, or None if it already existed.

        Raises:
            UsageError: A job's name, data or option is invalid; none was added.
            ServerError: The server refused a job, which the error names; others were added.
        """
        placed = await self._place_all(jobs, durability)
        return [each.added.job_id if each.added.is_new else None for each in placed]
