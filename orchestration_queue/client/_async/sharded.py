"""A queue split into shards: plain queues that a cluster distributes over its primaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from itertools import count, zip_longest
from secrets import randbelow
from typing import Any

from orchestration_queue.client._async.client import AsyncClient
from orchestration_queue.client._async.events import AsyncShardedEvents
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.producer import require_placed
from orchestration_queue.client._async.queue import AsyncQueue
from orchestration_queue.client.checks import check_items, check_limit, check_text
from orchestration_queue.client.durability import Durability, GivenDurability
from orchestration_queue.options import Duration
from orchestration_queue.protocol.call import together
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.operations import additions, job_records, queue_state
from orchestration_queue.protocol.operations.additions import GivenOptions, GivenParent, NewJob, Outcome
from orchestration_queue.protocol.operations.queue_state import JobCounts
from orchestration_queue.protocol.shards import shard_names, shard_of
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncShardedQueue"]

_DEFAULT_WAIT = timedelta(seconds=30)


class AsyncShardedQueue(AsyncClient):
    """A queue larger than one server's core, split into plain queues ``name.0``, ``name.1`` and so on, its shards.

    A job is placed by its ordering key, else by its deduplication id, else by its own id; all others are distributed
    evenly. Order, limits, priorities and automatic ids apply to each shard separately.

    Args:
        name: The first part of the shards' names.
        shards: How many there are, 1 to 1,024; the same for every client. To change it, see "Shards" in the how-to.
        url: The server or cluster; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key.
        codec: How job data are written, as for :class:`AsyncQueue`.
        emit_events: Emit an event for each job that is added. Disable to save one stream entry per job.
        durability: When :meth:`add` returns, as for :class:`AsyncQueue`.

    Raises:
        InvalidNameError: A shard's name is invalid.
        InvalidOptionError: The number of shards is out of range.
        UsageError: Both ``url`` and ``connection`` are given, or there is no such codec.

    Attributes:
        name: The first part of the shards' names.
        shards: The plain queues, for everything that this class lacks: ``for shard in queue.shards: ...``.

    Examples:
        >>> async with AsyncShardedQueue("events", 8) as queue:  # doctest: +SKIP
        ...     await queue.add("store", {"n": 1}, {"ordering": {"key": "customer-7"}})
    """

    def __init__(
        self,
        name: str,
        shards: int,
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        codec: str = "json",
        emit_events: bool = True,
        durability: GivenDurability = "primary",
    ) -> None:
        names = shard_names(check_text(name, "name"), shards)
        super().__init__(url, connection)
        self.name = name
        self.shards = tuple(
            AsyncQueue(
                shard,
                connection=self._connection,
                prefix=prefix,
                codec=codec,
                emit_events=emit_events,
                durability=durability,
            )
            for shard in names
        )
        # Processes that add one job each must not all choose the same shard.
        self._turns = count(randbelow(len(names)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {len(self.shards)} shards>"

    def shard_for(self, key: str) -> AsyncQueue:
        """Return the shard of a key: an ordering key, a deduplication id, a job id, or any other string.

        A repeatable job, a flow's node or a dead letter belongs to one queue. Pass its name, and use the methods of the
        shard: ``queue.shard_for("nightly").schedulers.upsert("nightly", ...)``.

        Raises:
            UsageError: The key is empty, or not a string.
        """
        return self.shards[shard_of(key, len(self.shards))]

    def _shard_of(self, job: NewJob) -> AsyncQueue:
        """Return the shard of a new job; for one without a key, the next one."""
        options = job.options
        if options.ordering is not None:
            return self.shard_for(options.ordering.key)
        if options.deduplication is not None:
            return self.shard_for(options.deduplication.id)
        if options.job_id is not None:
            return self.shard_for(options.job_id)
        return self.shards[next(self._turns) % len(self.shards)]

    async def add(
        self,
        name: str,
        data: Any = None,
        options: GivenOptions = None,
        *,
        parent: GivenParent = None,
        durability: GivenDurability | None = None,
    ) -> AsyncJob:
        """Add a job to its shard; see :meth:`AsyncQueue.add`. The job's ``queue`` is the shard's name.

        Raises:
            UsageError: The name, the data or an option is invalid.
            NotReplicatedError: Too few replicas confirmed the job in time; the primary has it.
        """
        shard = self._shard_of(NewJob(name, data, options, parent))
        return await shard.add(name, data, options, parent=parent, durability=durability)

    async def add_bulk(self, jobs: Sequence[NewJob], *, durability: GivenDurability | None = None) -> list[AsyncJob]:
        """Add many jobs, up to 100 per shard and exchange. All are checked before the first is sent.

        Returns:
            A job for each one given, in the same order. Those that already existed have ``is_new`` False.

        Raises:
            UsageError: A job's name, data or option is invalid; none was added.
            ServerError: A server refused a job, which the error names; others were added.
            TransportError: A server was unreachable. ``maybe_applied`` says whether a shard may already have jobs; give
                jobs ids of their own to be able to call it again.
        """
        wanted = self.shards[0]._durability_of(durability)
        places: dict[AsyncQueue, list[int]] = {}
        encoded: list[NewJob] = []
        for place, job in enumerate(check_items(jobs, NewJob, "jobs")):
            shard = self._shard_of(job)
            places.setdefault(shard, []).append(place)
            encoded.append(shard._encode(job))
        at_ms = now_ms()
        of_shards = {shard: [encoded[place] for place in here] for shard, here in places.items()}
        if all(job.is_plain for job in encoded):
            added = await self._add_together(of_shards, at_ms, wanted)
        else:
            added = {shard: await shard._add_all(some, at_ms, wanted) for shard, some in of_shards.items()}
        outcomes = {
            place: outcome
            for shard, here in places.items()
            for place, outcome in zip(here, added[shard], strict=False)  # the rest was not sent
        }
        placed = require_placed(encoded, [outcomes.get(place) for place in range(len(encoded))], at_ms)
        found: dict[int, AsyncJob] = {}
        for shard, here in places.items():
            found |= zip(here, await shard._jobs([placed[place] for place in here]), strict=True)
        return [found[place] for place in range(len(encoded))]

    async def _add_together(
        self, jobs: Mapping[AsyncQueue, Sequence[NewJob]], at_ms: int, durability: Durability
    ) -> dict[AsyncQueue, list[Outcome]]:
        """Add plain jobs, a batch per shard in each exchange."""
        portions = [[(shard, some) for some in additions.portions(here)] for shard, here in jobs.items()]
        rounds = [[sent for sent in turn if sent is not None] for turn in zip_longest(*portions)]
        batches = (
            [call for shard, some in turn for call in shard._portion_calls(some, at_ms, durability)] for turn in rounds
        )
        outcomes: dict[AsyncQueue, list[Outcome]] = {shard: [] for shard in jobs}
        for turn, answers in zip(rounds, await self._connection.pipelines(batches), strict=False):
            replies = iter(answers)
            for shard, some in turn:
                outcomes[shard] += shard._read_portion(some, replies, durability)
        return outcomes

    async def add_and_wait(
        self,
        name: str,
        data: Any = None,
        options: GivenOptions = None,
        *,
        timeout: Duration | None = _DEFAULT_WAIT,  # noqa: ASYNC109  both faces have it
    ) -> Any:
        """Add a job and wait until it has finished; see :meth:`AsyncQueue.add_and_wait`.

        Raises:
            UsageError: The name, the data or an option is invalid.
            JobFailedError: The job failed for good, or was removed before it finished.
            TimeoutError: The timeout expired. The job continues.
        """
        shard = self._shard_of(NewJob(name, data, options))
        return await shard.add_and_wait(name, data, options, timeout=timeout)

    async def find(self, job_id: str) -> list[AsyncJob]:
        """Return the jobs with this id, in one exchange; at most one if the id is your own, which determines the shard.

        Each shard counts automatic ids separately, so several jobs can have the same one.

        Raises:
            UsageError: The id is empty, or not a string.
        """
        wanted = [(shard.keys, job_id) for shard in self.shards if check_text(job_id, "job_id")]
        records = await self._connection.follow(job_records.jobs(wanted))
        return [shard._job(record) for shard, record in zip(self.shards, records, strict=True) if record is not None]

    async def search(
        self,
        name: str | None = None,
        state: JobState | str | None = None,
        data: Mapping[str, Any] | None = None,
        limit: int | None = 100,
        kind: str | None = None,
    ) -> list[AsyncJob]:
        """Return at most ``limit`` jobs that match, shard by shard. Arguments as for :meth:`AsyncQueue.search`.

        Raises:
            UsageError: An argument has the wrong type.
        """
        left = check_limit(limit)
        found: list[AsyncJob] = []
        for shard in self.shards:
            found += await shard.search(name, state, data, None if left is None else left - len(found), kind)
            if left is not None and len(found) >= left:
                break
        return found

    async def counts(self) -> JobCounts:
        """Return how many jobs of all shards are in each state, in one exchange."""
        return _sum(await self.counts_by_shard())

    async def counts_by_shard(self) -> list[JobCounts]:
        """Return how many jobs of each shard are in each state, in the shards' order, in one exchange."""
        return await self._connection.follow(together([queue_state.counts(shard.keys) for shard in self.shards]))

    async def pause(self) -> None:
        """Stop workers from taking jobs, shard by shard; if it fails for one, call it again."""
        for shard in self.shards:
            await shard.pause()

    async def resume(self) -> None:
        """Let workers take jobs again, shard by shard; if it fails for one, call it again."""
        for shard in self.shards:
            await shard.resume()

    def events(self, after: Mapping[str, str] | None = None) -> AsyncShardedEvents:
        """Iterate over the shards' events as they happen; see :class:`AsyncShardedEvents`.

        Args:
            after: Cursors of an earlier reader, to resume; default: events from now on.

        Raises:
            UsageError: It names a queue that is not a shard, or a cursor is not an event id.
        """
        keys = [shard.keys for shard in self.shards]
        return AsyncShardedEvents(self._connection, keys, {} if after is None else after)


def _sum(counts: Sequence[JobCounts]) -> JobCounts:
    return JobCounts(**{field.name: sum(getattr(each, field.name) for each in counts) for field in fields(JobCounts)})
