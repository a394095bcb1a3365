"""Adding jobs, and nothing else: for functions that start, add, and end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestration_queue.client._async.adder import AsyncAdder
from orchestration_queue.client.durability import GivenDurability
from orchestration_queue.protocol.operations.additions import GivenOptions, GivenParent, NewJob

__all__ = ["AsyncProducer"]


class AsyncProducer(AsyncAdder):
    """Adds jobs to a queue and returns their ids. It loads no more than that takes, and reads nothing back.

    Keep one for the life of the process, so that a serverless function connects once and not at every call::

        producer = AsyncProducer("emails")

        async def handler(event):
            return await producer.add("send", event)

    Args:
        name: The queue's name: up to 256 characters, without ``:`` ``{`` ``}``.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.
        codec: How the jobs' data are written, as for :class:`AsyncQueue`.
        emit_events: Emit an event for each job. Disable to save one stream entry per job.

    Raises:
        InvalidNameError: The wire cannot carry the queue's name.
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
        """Add a job; arguments as for :meth:`AsyncQueue.add`. One exchange to the server.

        Returns:
            The new job's id. None when its id or deduplication id was there already; then nothing was added.

        Raises:
            UsageError: Name, data or options are such that the wire cannot carry them.
            NotReplicatedError: Too few replicas confirmed the job in time; the primary has it.
        """
        placed = await self._place(NewJob(name, data, options, parent), durability)
        return placed.added.job_id if placed.added.is_new else None

    async def add_bulk(self, jobs: Sequence[NewJob], *, durability: GivenDurability | None = None) -> list[str | None]:
        """Add many jobs, 200 to an exchange. All are checked before the first is sent.

        Returns:
            For each job given, in the same order: its id, or None when it was there already.

        Raises:
            UsageError: A job's name, data or options are such that the wire cannot carry them; none was added.
            ServerError: The server refused a job, which it names; others were added.
        """
        placed = await self._place_all(jobs, durability)
        return [each.added.job_id if each.added.is_new else None for each in placed]
