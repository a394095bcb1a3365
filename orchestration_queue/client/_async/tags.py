"""The jobs of a queue by tag."""

from __future__ import annotations

from typing import TypeAlias

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.waking import destination, move_jobs, wake
from orchestration_queue.client.checks import check_page
from orchestration_queue.options import Duration, check_tag
from orchestration_queue.protocol.call import all_good, chunks, integer, text
from orchestration_queue.protocol.operations import control, job_records, job_search
from orchestration_queue.protocol.operations.job_search import TagCount
from orchestration_queue.protocol.operations.moves import MovedJobs
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncTags"]

_Counts: TypeAlias = list[TagCount]
_Jobs: TypeAlias = list[AsyncJob]


class AsyncTags(AsyncQueueClient):
    """The jobs of a queue by tag. ``JobOptions(tags=...)``, ``job.tag`` and ``job.untag`` set which tags a job has.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    async def list(self, *, limit: int | None = 100, offset: int = 0) -> _Counts:
        """Count the jobs of each tag, the most used tag first. One exchange.

        Args:
            limit: At most this many tags; None for all.
            offset: How many of the most used to skip.

        Raises:
            UsageError: The limit or the offset is negative, or not an integer.
        """
        check_page(limit, offset)
        return await self._connection.look(job_search.most_used_tags(self.keys, limit, offset))

    async def jobs(self, tag: str, *, limit: int | None = 100, offset: int = 0) -> _Jobs:
        """List the jobs with a tag in all states, oldest first. Two exchanges per 200 jobs.

        Args:
            tag: The tag.
            limit: At most this many; None for all.
            offset: How many of the oldest to skip.

        Raises:
            UsageError: The tag is invalid, or the limit or the offset is negative, or not an integer.
        """
        check_page(limit, offset)
        ids = await self._connection.follow(job_search.tagged_ids(self.keys, check_tag(tag), limit, offset))
        records = await self._connection.follow(job_records.jobs([(self.keys, job_id) for job_id in ids]))
        return [self._job(record) for record in records if record is not None]

    async def retry(self, tag: str) -> int:
        """Make the failed jobs with a tag ready, with all their attempts; return how many there were.

        Raises:
            UsageError: The tag is invalid.
        """
        ids = await self._connection.follow(job_search.tagged_ids(self.keys, check_tag(tag), None))
        retried = 0
        for some in chunks(ids, job_search.TAG_PAGE):
            retried += await self._connection.follow(control.retry_each(self.keys, some, now_ms()))
        if retried:
            await wake(self._connection, self.keys)
        return retried

    async def move(self, tag: str, queue: str, *, delay: Duration | None = None) -> MovedJobs:
        """Move the jobs with a tag to another queue, as :meth:`Queue.move_jobs` does.

        Args:
            tag: The tag.
            queue: The other queue's name.
            delay: When they are due there, counted from their arrival: a duration, or seconds; default: as before.

        Returns:
            The ids of the moved jobs, and for each other job, such as a running one, the reason.

        Raises:
            InvalidNameError: The queue's name is invalid.
            InvalidOptionError: The delay is negative, or not a duration.
            UsageError: The tag is invalid, or it is this queue.
        """
        destination(self.keys, queue, delay)  # refused before anything is read
        ids = await self._connection.follow(job_search.tagged_ids(self.keys, check_tag(tag), None))
        return await move_jobs(self._connection, self.keys, ids, queue, delay)

    async def cancel(self, tag: str) -> int:
        """Cancel the unfinished jobs with a tag; return how many there were. Workers stop the running ones.

        Raises:
            UsageError: The tag is invalid.
        """
        ids = await self._connection.follow(job_search.tagged_ids(self.keys, check_tag(tag), None))
        cancelled = 0
        for some in chunks(ids, control.MOST_WITHDRAWN):
            jobs = await self._connection.follow(job_records.jobs([(self.keys, each) for each in some], ("state",)))
            unfinished = [job.id for job in jobs if job is not None and not job.is_finished]
            calls = [control.cancel(self.keys, job_id, now_ms()).call for job_id in unfinished]
            replies = all_good(await self._connection.pipeline(calls)) if calls else []
            cancelled += sum(text(reply) != "not_found" for reply in replies)
        return cancelled

    async def remove(self, tag: str) -> int:
        """Remove the jobs with a tag in all states; return how many there were. Running handlers are not stopped.

        Raises:
            UsageError: The tag is invalid.
        """
        ids = await self._connection.follow(job_search.tagged_ids(self.keys, check_tag(tag), None))
        removed = 0
        for some in chunks(ids, control.MOST_WITHDRAWN):
            calls = [control.remove(self.keys, job_id).call for job_id in some]
            repair = job_search.tag_page(self.keys, tag, 0, 1).call  # removes jobs that no longer exist from the index
            *replies, _ = all_good(await self._connection.pipeline([*calls, repair]))
            removed += sum(map(integer, replies))
        return removed
