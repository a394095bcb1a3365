"""The queue, for producers and operators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestration_queue.client._async.client import AsyncClient
from orchestration_queue.client._async.dead_letters import AsyncDeadLetters
from orchestration_queue.client._async.events import AsyncQueueEvents
from orchestration_queue.client._async.flows import AsyncFlows
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.log_tail import AsyncLogTail
from orchestration_queue.client._async.producer import AsyncAdder
from orchestration_queue.client._async.queue_reading import AsyncQueueReading
from orchestration_queue.client._async.queue_upkeep import AsyncQueueUpkeep
from orchestration_queue.client._async.schedulers import AsyncJobSchedulers
from orchestration_queue.client._async.sharing import AsyncPools, AsyncShares
from orchestration_queue.client._async.tags import AsyncTags
from orchestration_queue.client._async.taker import AsyncTaking
from orchestration_queue.client._async.usage import AsyncUsageLedger
from orchestration_queue.client._async.worker_control import AsyncWorkerControl
from orchestration_queue.client.durability import GivenDurability
from orchestration_queue.client.values import Deadline
from orchestration_queue.options import Duration
from orchestration_queue.options.habits import QUEUE_HABITS, advise
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.operations.additions import GivenOptions, GivenParent, NewJob
from orchestration_queue.protocol.operations.keyspace import queue_names
from orchestration_queue.server import AsyncConnection

__all__ = ["AsyncQueue"]

_DEFAULT_WAIT = timedelta(seconds=30)


class AsyncQueue(AsyncAdder, AsyncQueueReading, AsyncQueueUpkeep, AsyncWorkerControl, AsyncTaking):
    """A queue of jobs. It connects when first used.

    Args:
        name: The queue's name: up to 256 characters, without ``:`` ``{`` ``}``.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open when the queue is closed.
        prefix: First part of every key.
        codec: How job data are written: ``json``; ``gzip``, which compresses the JSON and which all clients of this
            wire detect; ``msgpack``, which also carries bytes and datetimes, but which Node clients can't read; or one
            of your own, from :func:`register_codec`.
        emit_events: Emit an event for each job that is added. Disable to save one stream entry per job.
        dead_letter_queue: The queue that keeps this queue's dead letters; default: the one that the workers configured.
        durability: When :meth:`add` returns: ``primary`` once the primary has the job, ``replicated`` once a replica
            has it, too, so that a failover doesn't lose it. :class:`Replicated` says how many replicas, and how long to
            wait.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: Both ``url`` and ``connection`` are given, or there is no such codec.

    Attributes:
        schedulers: The queue's repeatable jobs.
        usage: Tokens and costs of its jobs, and the budgets of its flows.
        flows: The flows submitted to it.
        dead_letters: Jobs that failed for good, as its workers stored them.
        tags: Its jobs by tag.
        pools: Slots that jobs of all queues with this prefix share.
        shares: Its shares, such as tenants, and the weight of each.
    """

    if not TYPE_CHECKING:
        __getattr__ = advise(QUEUE_HABITS)

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        codec: str = "json",
        emit_events: bool = True,
        dead_letter_queue: str | None = None,
        durability: GivenDurability = "primary",
    ) -> None:
        super().__init__(
            name,
            url=url,
            connection=connection,
            prefix=prefix,
            codec=codec,
            emit_events=emit_events,
            durability=durability,
        )
        self.schedulers = AsyncJobSchedulers(name, connection=self._connection, prefix=prefix)
        self.usage = AsyncUsageLedger(name, connection=self._connection, prefix=prefix)
        self.flows = AsyncFlows(name, connection=self._connection, prefix=prefix)
        self.pools = AsyncPools(connection=self._connection, prefix=prefix)
        self.shares = AsyncShares(name, connection=self._connection, prefix=prefix)
        self.tags = AsyncTags(name, connection=self._connection, prefix=prefix)
        self.dead_letters = AsyncDeadLetters(name, dead_letter_queue, connection=self._connection, prefix=prefix)

    @classmethod
    async def names(
        cls, *, url: str | None = None, connection: AsyncConnection | None = None, prefix: str = DEFAULT_PREFIX
    ) -> list[str]:
        """Return the names of all queues that were ever used with a key prefix, sorted. Scans all keys."""
        async with AsyncClient(url, connection) as client:
            primaries = await client._connection.primaries()
        names: set[str] = set()
        for primary in primaries:
            async with await AsyncConnection.open(primary, libraries=()) as one:
                names.update(await one.follow(queue_names(prefix)))
        return sorted(names)

    async def add(
        self,
        name: str,
        data: Any = None,
        options: GivenOptions = None,
        *,
        parent: GivenParent = None,
        durability: GivenDurability | None = None,
    ) -> AsyncJob:
        """Add a job.

        Args:
            name: What kind of job it is: the task's name.
            data: Its payload: anything the queue's codec can write, or a pydantic model.
            options: How it is placed, retried, limited and kept, or a dict of these. By default it is due immediately,
                has one attempt, and is kept.
            parent: The job that waits for it.
            durability: ``primary`` or ``replicated`` for this job; default: the client's.

        Returns:
            The job. If a job with its id or deduplication id already existed, that job, with ``is_new`` False; nothing
            was added.

        Raises:
            UsageError: The name, the data or an option is invalid.
            NotReplicatedError: Too few replicas confirmed the job in time; the primary has it.
        """
        placed = await self._place(NewJob(name, data, options, parent), durability)
        return self._job_as_sent(placed) or (await self._jobs([placed]))[0]

    async def add_bulk(self, jobs: Sequence[NewJob], *, durability: GivenDurability | None = None) -> list[AsyncJob]:
        """Add many jobs, 100 per exchange. All are checked before the first is sent.

        Returns:
            A job for each one given, in the same order. Those that already existed have ``is_new`` False.

        Raises:
            UsageError: A job's name, data or option is invalid; none was added.
            ServerError: The server refused a job, which the error names; others were added.
        """
        return await self._jobs(await self._place_all(jobs, durability))

    async def add_and_wait(
        self,
        name: str,
        data: Any = None,
        options: GivenOptions = None,
        *,
        timeout: Duration | None = _DEFAULT_WAIT,  # noqa: ASYNC109  both faces have it
    ) -> Any:
        """Add a job and wait until it has finished.

        It starts to listen before it adds the job, so it also sees the end of a job that is not kept. If the job
        already existed, it waits for that one.

        Args:
            name: What kind of job it is: the task's name.
            data: Its payload, as for :meth:`add`.
            options: How it is placed, retried, limited and kept.
            timeout: A duration, or seconds; default 30 s; None waits forever.

        Returns:
            What its handler returned.

        Raises:
            UsageError: The name, the data or an option is invalid.
            JobFailedError: The job failed for good, or was removed before it finished.
            TimeoutError: The timeout expired. The job continues.
        """
        deadline = Deadline(timeout)
        new = NewJob(name, data, options)
        async with self._listener.watch(self.keys) as watch:
            (job,) = await self._jobs([await self._place(new)])
            return await job.wait(deadline.remaining, watch=watch)

    def events(self, after: str = "$") -> AsyncQueueEvents:
        """Iterate over the queue's events as they happen; see :class:`AsyncQueueEvents`."""
        return AsyncQueueEvents(self.name, connection=self._connection, prefix=self.keys.prefix, after=after)

    def log_tail(self) -> AsyncLogTail:
        """Return a reader of what the queue's jobs log from now on; see :class:`AsyncLogTail`."""
        return AsyncLogTail(self._connection, self.keys)
