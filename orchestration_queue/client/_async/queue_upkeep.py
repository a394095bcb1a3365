"""Operate a queue: pause it, limit it, clean it, remove it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Unpack

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client._async.waking import move_jobs, run_and_wake, wake, wake_all
from orchestration_queue.client.checks import (
    check_finished,
    check_flag,
    check_items,
    check_kind,
    check_limit,
    check_text,
)
from orchestration_queue.errors import InvalidOptionError, StateError
from orchestration_queue.options import Duration, QueueSettings, RateLimit, milliseconds
from orchestration_queue.options.durations import check_duration
from orchestration_queue.options.queue import QueueSettingsFields
from orchestration_queue.protocol.call import chunks
from orchestration_queue.protocol.operations import (
    control,
    job_search,
    keyspace,
    queue_settings,
    queue_state,
    suspension,
)
from orchestration_queue.protocol.operations.control import Cancellation
from orchestration_queue.protocol.operations.dead_letters import dead_letter_keys
from orchestration_queue.protocol.operations.moves import MovedJobs
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncQueueUpkeep"]

_JOBS_PER_CALL = 100
_RETRIES_PER_CALL = 100
"""Maximum jobs that one call retries or removes, so that it blocks the server for less than 10 ms."""


class AsyncQueueUpkeep(AsyncQueueClient):
    """Methods that act on a queue as a whole, or on jobs by their ids."""

    async def pause(self) -> None:
        """Stop workers from taking jobs. Running jobs continue. Node workers ignore it."""
        await self._connection.run(control.pause(self.keys))

    async def resume(self) -> None:
        """Let workers take jobs again."""
        await self._connection.run(control.resume(self.keys))
        await wake_all(self._connection, self.keys)

    async def set_global_concurrency(self, limit: int | None) -> None:
        """Set how many jobs all workers together may run at a time; None sets no limit.

        Workers notice within seconds. Jobs already running continue, even if they exceed the limit.

        Raises:
            InvalidOptionError: The limit is not a positive integer.
        """
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InvalidOptionError(
                f"`limit` must be a whole number >= 1, or None for no limit; got {limit!r} "
                "(to stop the workers, pause the queue)."
            )
        await self._connection.execute(queue_settings.set_global_concurrency(self.keys, limit))

    async def set_global_rate_limit(self, limit: RateLimit | None) -> None:
        """Set the maximum job starts per window across all workers; None sets no limit.

        It takes precedence over the workers' own limits. Workers notice within seconds.

        Raises:
            InvalidOptionError: It is not a rate limit.
        """
        if limit is not None and not isinstance(limit, RateLimit):
            raise InvalidOptionError(f"`limit` must be a RateLimit, or None for no limit; got {limit!r}.")
        await self._connection.execute(queue_settings.set_global_rate_limit(self.keys, limit))

    async def configure(self, **settings: Unpack[QueueSettingsFields]) -> QueueSettings:
        """Set defaults and limits for all jobs and workers of the queue. Settings that are not named stay unchanged.

        Workers of this library apply them within one tick, also to jobs that are already waiting. Node workers know
        only ``concurrency`` and ``rate_limit``, which :meth:`set_global_concurrency` and :meth:`set_global_rate_limit`
        also set.

        Args:
            **settings: ``attempts``, ``backoff``, ``timeout``, ``remove_on_complete`` and ``remove_on_fail`` of
                :class:`JobOptions`, for jobs added without them: a job's own options take precedence, then its task's,
                then these. ``lease``, which takes precedence over the workers' but not over a job's own.
                ``dead_letter_queue``, which takes precedence over the workers'. ``concurrency`` and ``rate_limit`` of
                all workers together. None removes a setting.

        Returns:
            All settings, after the change.

        Raises:
            InvalidNameError: The name of the dead-letter queue is invalid.
            InvalidOptionError: There is no such setting, its value is out of range, or the queue would be its own
                dead-letter queue. Nothing was changed.
        """
        changes = QueueSettings(**settings)
        if changes.dead_letter_queue is not None:
            dead_letter_keys(self.keys, changes.dead_letter_queue)
        if calls := queue_settings.set_settings(self.keys, changes):
            await self._connection.pipeline(calls, atomic=True)
            await wake_all(self._connection, self.keys)
        return await self.settings()

    async def settings(self) -> QueueSettings:
        """Return what :meth:`configure` set, and limits set otherwise."""
        return await self._connection.look(queue_settings.settings(self.keys))

    async def rate_limit_group(self, key: str, duration: Duration) -> datetime:
        """Delay jobs that wait for the limit of their ordering key, for instance after a "too many requests" response.

        On this wire it applies only to parked jobs. A job that is not parked yet, or that starts directly when another
        of its key ends, is not delayed. To delay these too, give the key its own rate limit.

        Args:
            key: The ordering key.
            duration: How long from now, a duration or seconds. A later end that was already set is kept.

        Returns:
            When the group resumes.

        Raises:
            UsageError: The key is empty, or the duration is not positive.
        """
        check_text(key, "key")
        held = RateLimit(max=1, duration=check_duration(duration, "duration")).duration
        return await self._connection.run(
            queue_settings.hold_group(self.keys, key, max(1, milliseconds(held)), now_ms())
        )

    async def signal(self, job_id: str, name: str, data: Any = None) -> bool:
        """Send a suspended job a signal and make it ready.

        Args:
            job_id: The job.
            name: What kind of signal it is.
            data: Its payload, anything JSON can represent.

        Returns:
            Whether the job was resumed; False if it is not suspended or does not exist.

        Raises:
            UsageError: The name is empty or not a string.
            PayloadError: The data is not JSON, or larger than 1 MiB.
        """
        return await self._connection.run(
            suspension.signal(self.keys, check_text(job_id, "job_id"), name, data, now_ms())
        )

    async def remove(self, job_id: str, *, force: bool = False) -> bool:
        """Remove a job in any state; return False if it does not exist. A running handler is not stopped.

        Args:
            job_id: The job.
            force: Remove it even if other jobs wait for it, which may then wait forever.

        Raises:
            StateError: Other jobs wait for it, and ``force`` is not given; nothing was removed.
        """
        remove = control.remove if check_flag(force, "force") else control.remove_unneeded
        return await self._connection.run(remove(self.keys, check_text(job_id, "job_id")))

    async def cancel(self, job_id: str) -> Cancellation:
        """Cancel a job: it fails if it has not started; otherwise its worker stops it.

        Raises:
            JobNotFoundError: It does not exist.
        """
        return await self._connection.run(control.cancel(self.keys, check_text(job_id, "job_id"), now_ms()))

    async def retry_jobs(self, limit: int | None = None, kind: str | None = None) -> int:
        """Make failed jobs ready with all their attempts, oldest first. One exchange per 100 jobs.

        Args:
            limit: At most this many; None for all that have failed by now.
            kind: Only those with this kind of failure, as :meth:`failures` lists it. Reads all failed jobs.

        Returns:
            How many were retried.

        Raises:
            UsageError: ``limit`` is negative or not an integer, or ``kind`` is not a string.
        """
        most = check_limit(limit)
        if kind is not None:
            return await self._retry_kind(check_text(kind, "kind"), most)
        # Counted once: jobs that fail again during the call must not prolong it.
        failed = await self._connection.look(queue_state.finished_count(self.keys, JobState.FAILED))
        left, done = failed if most is None else min(most, failed), 0
        while left > 0:
            done += await run_and_wake(
                self._connection, self.keys, control.retry_jobs(self.keys, min(left, _RETRIES_PER_CALL), now_ms())
            )
            left -= _RETRIES_PER_CALL
        return done

    async def _retry_kind(self, kind: str, limit: int | None) -> int:
        ids = await self._connection.follow(job_search.failed_ids(self.keys, kind, limit))
        done = 0
        for some in chunks(ids, _RETRIES_PER_CALL):
            done += await self._connection.follow(control.retry_each(self.keys, some, now_ms()))
            await wake(self._connection, self.keys)
        return done

    async def move_jobs(self, job_ids: Iterable[str], queue: str, *, delay: Duration | None = None) -> MovedJobs:
        """Move jobs that are not running to another queue, 10 per four or five exchanges.

        Each is moved as :meth:`Job.move` does it: with its id, history, tags and the jobs that wait for it. Jobs that
        can't be moved stay unchanged. If interrupted, every job is in one of the two queues; call it again.

        Args:
            job_ids: Their ids, for instance from :meth:`search`; :attr:`tags` moves the jobs of a tag.
            queue: The other queue's name.
            delay: When they are due there, counted from their arrival: a duration, or seconds; default: as before.

        Returns:
            The ids of the moved jobs, and for each other job the reason.

        Raises:
            InvalidNameError: The queue's name is invalid.
            InvalidOptionError: The delay is negative, or not a duration.
            UsageError: These are not ids, or it is this queue.
        """
        ids = [check_text(each, "job_ids") for each in dict.fromkeys(check_items(job_ids, str, "job_ids"))]
        return await move_jobs(self._connection, self.keys, ids, queue, delay)

    async def clean(
        self,
        grace: Duration,
        limit: int | None = 1000,
        state: JobState | str = JobState.COMPLETED,
        kind: str | None = None,
    ) -> list[str]:
        """Remove jobs that finished longer ago than ``grace``, oldest first. One exchange per 200 jobs.

        Args:
            grace: How long they are kept: a duration, or seconds.
            limit: At most this many; None for all.
            state: ``completed`` or ``failed``.
            kind: Only failed jobs with this kind of failure. Reads all failed jobs.

        Returns:
            The removed jobs' ids.

        Raises:
            UsageError: ``grace`` or ``limit`` is negative or of a wrong type, ``state`` is neither, or ``kind`` is not
                a string or given for completed jobs.
        """
        cutoff_ms = now_ms() - milliseconds(check_duration(grace, "grace"))
        finished = check_finished(state, "can be cleaned")
        most = check_limit(limit)
        if kind is not None:
            return await self._clean_kind(check_kind(kind, finished), most, cutoff_ms)
        removed: list[str] = []
        while most is None or len(removed) < most:
            batch_size = _JOBS_PER_CALL if most is None else min(most - len(removed), _JOBS_PER_CALL)
            gone = await self._connection.run(control.clean(self.keys, finished, cutoff_ms, batch_size))
            removed += gone
            if len(gone) < batch_size:
                break
        return removed

    async def _clean_kind(self, kind: str, limit: int | None, cutoff_ms: int) -> list[str]:
        ids = await self._connection.follow(job_search.failed_ids(self.keys, kind, limit, cutoff_ms))
        removed: list[str] = []
        for some in chunks(ids, _JOBS_PER_CALL):
            removed += await self._connection.run(control.remove_finished(self.keys, JobState.FAILED, some))
        return removed

    async def drain(self, *, delayed: bool = False) -> int:
        """Remove every job that is ready now, and with ``delayed`` those that are due later, 100 per call.

        Node clients do it in one call, which blocks the server for seconds if the queue is long. Here, jobs that were
        not reached yet may start meanwhile; pause the queue first to prevent that.

        Returns:
            How many were removed.
        """
        check_flag(delayed, "delayed")
        counts = await self._connection.follow(queue_state.counts(self.keys))
        left = counts.waiting + (counts.delayed if delayed else 0)
        removed, last = 0, 1
        while left > 0 and last > 0:
            last = await self._connection.run(control.drain(self.keys, min(left, _JOBS_PER_CALL), delayed=delayed))
            removed += last
            left -= last
        return removed

    async def obliterate(self, *, force: bool = False) -> int:
        """Remove the queue with all its jobs, settings, schedules and counts. This can't be undone.

        Scans all keys of the queue's server, and removes them 1,000 at a time. If interrupted, no job of the queue can
        start; call it again. Running workers continue with an empty queue, and outcomes of jobs they are running are
        discarded. Jobs that are added meanwhile may be removed, too.

        Args:
            force: Remove it even while jobs are active.

        Returns:
            How many keys were removed.

        Raises:
            StateError: Jobs are active, and ``force`` is not given; nothing was removed.
        """
        active = 0 if check_flag(force, "force") else await self._connection.follow(keyspace.active_jobs(self.keys))
        if active:
            raise StateError(
                f"Can't obliterate queue {self.name!r}: {active} of its jobs are active; wait until they have "
                "finished, or pass force=True to discard their outcomes."
            )
        return await self._connection.follow(keyspace.remove_queue(self.keys))
