"""Read a queue: its jobs, counts, settings and workers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client.checks import (
    check_count,
    check_day,
    check_finished,
    check_kind,
    check_limit,
    check_page,
    check_span,
    check_state,
    check_text,
)
from orchestration_queue.errors import JobNotFoundError, UsageError
from orchestration_queue.options import RateLimit
from orchestration_queue.protocol import statistics
from orchestration_queue.protocol.operations import (
    control,
    job_output,
    job_records,
    job_search,
    queue_settings,
    queue_state,
    suspension,
    worker_registry,
)
from orchestration_queue.protocol.operations.job_output import FIRST_ENTRY, StreamEntry
from orchestration_queue.protocol.operations.job_search import FailureGroup, JobQuery, search_jobs
from orchestration_queue.protocol.operations.queue_state import JobCounts, Metrics
from orchestration_queue.protocol.operations.suspension import SuspendInfo
from orchestration_queue.protocol.record import when
from orchestration_queue.protocol.statistics import DayStatistics
from orchestration_queue.server.clock import epoch_ms, now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncQueueReading"]

_DAY = timedelta(days=1)
_LONGEST_METRICS = timedelta(days=31)


class AsyncQueueReading(AsyncQueueClient):
    """The readable side of a queue. Its methods change nothing and are retried when a connection breaks."""

    async def find(self, job_id: str) -> AsyncJob | None:
        """Return the job with this id; None if it does not exist."""
        record = await self._connection.look(job_records.job(self.keys, check_text(job_id, "job_id")))
        return None if record is None else self._job(record)

    async def get(self, job_id: str) -> AsyncJob:
        """Return the job with this id.

        Raises:
            JobNotFoundError: It does not exist.
        """
        job = await self.find(job_id)
        if job is None:
            raise JobNotFoundError(self.name, job_id)
        return job

    async def jobs(self, state: JobState | str, *, limit: int | None = None, offset: int = 0) -> list[AsyncJob]:
        """List the jobs in one state.

        Args:
            state: ``waiting`` (in the order in which workers take them, one share after the other), ``active``,
                ``delayed`` (with prioritized), or ``completed``, ``failed``, ``suspended`` (oldest first).
            limit: At most this many; None for all.
            offset: How many to skip.

        Raises:
            UsageError: The state or the page is invalid, or the wire keeps no list of jobs in that state.
        """
        start, end = check_page(limit, offset)
        ids = await self._connection.follow(job_records.job_ids(self.keys, check_state(state), start, end))
        records = await self._connection.follow(job_records.jobs([(self.keys, job_id) for job_id in ids]))
        return [self._job(record) for record in records if record is not None]

    async def suspended_jobs(self, *, limit: int | None = None, offset: int = 0) -> list[AsyncJob]:
        """List the jobs that wait for a signal, by the end of their wait; pages as in :meth:`jobs`."""
        return await self.jobs(JobState.SUSPENDED, limit=limit, offset=offset)

    async def tracked(self) -> list[AsyncJob]:
        """List the tracked jobs in all states, in the order in which they were tracked; at most 1,000.

        Takes two exchanges, and one more to forget tracked jobs that no longer exist.
        """
        ids = await self._connection.look(control.tracked_ids(self.keys))
        records = await self._connection.follow(job_records.jobs([(self.keys, job_id) for job_id in ids]))
        gone = [job_id for job_id, record in zip(ids, records, strict=True) if record is None]
        if gone:
            forgets = [control.track(self.keys, job_id, now_ms(), is_tracked=False).call for job_id in gone]
            await self._connection.pipeline(forgets)
        return [self._job(record) for record in records if record is not None]

    async def suspend_info(self, job_id: str) -> SuspendInfo | None:
        """Return why and since when a job is suspended; None if it is not."""
        return await self._connection.look(suspension.suspend_info(self.keys, check_text(job_id, "job_id")))

    async def search(
        self,
        name: str | None = None,
        state: JobState | str | None = None,
        data: Mapping[str, Any] | None = None,
        limit: int | None = 100,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[AsyncJob]:
        """Return at most ``limit`` jobs that match all conditions.

        Reads the jobs of each state in turn, 1,000 per exchange, until it has found enough. Rare jobs in a long queue
        take long to find, but don't block other clients. Node clients read only the first ``limit`` jobs of a state;
        this reads all.

        Args:
            name: Their name; None matches any.
            state: Their state. None searches the lists of all states. Of the jobs in ``waiting-children``, only those
                that called others from a step are listed; naming that state scans all keys of the queue's server.
            data: Fields that their data must have, with equal values; None matches any data.
            limit: At most this many; None for all.
            kind: The kind of failure of their last attempt, as :meth:`failures` lists it; None matches any.
            since: Only jobs that ended then or later, the last to end first; with the state completed or failed.
            until: Only jobs that ended before, likewise.

        Raises:
            UsageError: There is no such state, ``data`` is not a mapping, ``limit`` is not a number of jobs, ``kind``
                is not a string, or a time has no zone or is given for another state.
        """
        if name is not None and not isinstance(name, str):
            raise UsageError(f"`name` must be text, or None for any name; got {name!r}.")
        if data is not None and not isinstance(data, Mapping):
            raise UsageError(f"`data` must be a dict of fields such as {{'user': 7}}, got {data!r}.")
        wanted = None if state is None else check_state(state)
        most = check_limit(limit)
        query = JobQuery(name, data, kind=None if kind is None else check_kind(kind, wanted))
        span = check_span(since, until, wanted)
        found = await self._connection.follow(
            search_jobs(self.keys, query, wanted, sys.maxsize if most is None else most, span)
        )
        return [self._job(record) for record in found]

    async def failures(self) -> list[FailureGroup]:
        """Group the failed jobs by kind of failure, the most frequent kind first, with the latest job as an example.

        Reads all failed jobs, 1,000 at a time. :meth:`search`, :meth:`retry_jobs` and :meth:`clean` take a ``kind``.
        """
        return await self._connection.follow(job_search.failures(self.keys))

    async def counts(self) -> JobCounts:
        """Return how many jobs are waiting, active, delayed, completed, failed and suspended."""
        return await self._connection.follow(queue_state.counts(self.keys))

    async def count(self) -> int:
        """Return how many jobs are ready or running. Unlike Node's count, it includes prioritized and LIFO jobs."""
        return await self._connection.follow(queue_state.count(self.keys))

    async def oldest_ready(self) -> datetime | None:
        """Return when the oldest ready job became ready, by the server's clock; None if no job is ready.

        Prioritized and LIFO jobs are not considered: their lists don't record when they became ready.
        """
        return when(await self._connection.follow(queue_state.oldest_ready_ms(self.keys)))

    async def metrics(
        self, kind: JobState | str = JobState.COMPLETED, start: datetime | None = None, end: datetime | None = None
    ) -> Metrics:
        """Return how many jobs ended in each minute, and how long they took.

        Workers with ``record_metrics=False`` record nothing here. For a busy queue, the wire keeps one day.

        Args:
            kind: ``completed`` or ``failed``.
            start: Start time, with a time zone; default: a day before ``end``.
            end: End time, its minute included; default: now.

        Raises:
            UsageError: ``kind`` is neither, a time has no time zone, or the times are in the wrong order or more than
                31 days apart.
        """
        finished = check_finished(kind, "are counted by the minute")
        end_ms = now_ms() if end is None else epoch_ms(end)
        start_ms = end_ms - _DAY // timedelta(milliseconds=1) if start is None else epoch_ms(start)
        if not 0 <= end_ms - start_ms <= _LONGEST_METRICS // timedelta(milliseconds=1):
            raise UsageError(
                "The metrics' start must precede their end by at most 31 days; choose a shorter period, or swap them."
            )
        return await self._connection.follow(queue_state.metrics(self.keys, finished, start_ms, end_ms))

    async def statistics(self, day: date | None = None) -> DayStatistics:
        """Return how long jobs waited and ran on one day, and how many failed or were retried, by task. One exchange.

        Workers add their counts once a second, and a day is kept for 30 days. Workers with ``record_metrics=False`` and
        those in other languages record nothing here.

        Args:
            day: The day, in UTC; default: today.

        Raises:
            UsageError: It is not a date.
        """
        today = datetime.fromtimestamp(now_ms() / 1000, UTC).date()
        return await self._connection.look(statistics.statistics(self.keys, today if day is None else check_day(day)))

    async def logs(self, job_id: str, *, limit: int | None = None, offset: int = 0) -> list[str]:
        """Return up to ``limit`` lines that a job's handlers logged, after the first ``offset``."""
        page = check_page(limit, offset)
        return await self._connection.look(job_records.logs(self.keys, check_text(job_id, "job_id"), *page))

    async def last_logs(self, job_id: str, count: int) -> list[str]:
        """Return the last ``count`` lines that a job's handlers logged."""
        last = (1, 0) if check_count(count) == 0 else (-count, -1)
        return await self._connection.look(job_records.logs(self.keys, check_text(job_id, "job_id"), *last))

    async def read_stream(self, job_id: str, after: str = FIRST_ENTRY, count: int = 100) -> list[StreamEntry]:
        """Return up to ``count`` entries of a job's output stream, after the entry with the id ``after``.

        Raises:
            UsageError: ``after`` is not an entry id, or ``count`` is not positive.
        """
        return await self._connection.look(job_output.read(self.keys, check_text(job_id, "job_id"), after, count))

    async def is_paused(self) -> bool:
        """Return whether the queue is paused."""
        return await self._connection.look(worker_registry.is_paused(self.keys))

    async def global_concurrency(self) -> int | None:
        """Return how many jobs all workers together may run at a time; None without a limit."""
        return await self._connection.look(queue_settings.global_concurrency(self.keys))

    async def global_rate_limit(self) -> RateLimit | None:
        """Return how many jobs all workers together may start per window; None without a limit."""
        return await self._connection.look(queue_settings.global_rate_limit(self.keys))
