"""Looking after a queue: pause it, bound it, tidy it up, remove it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Unpack

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client._async.moving import move_jobs
from orchestration_queue.client._async.waking import run_and_wake, wake
from orchestration_queue.client.checks import (
    checked_finished,
    checked_flag,
    checked_items,
    checked_kind,
    checked_limit,
    checked_text,
)
from orchestration_queue.errors import InvalidOptionError, StateError
from orchestration_queue.options import Duration, QueueSettings, RateLimit, milliseconds
from orchestration_queue.options.durations import checked_duration
from orchestration_queue.options.queue import QueueSettingsFields
from orchestration_queue.protocol.operations import control, edits, failures, keyspace, queue_settings, queue_state
from orchestration_queue.protocol.operations.control import Cancellation
from orchestration_queue.protocol.operations.conversation import chunks
from orchestration_queue.protocol.operations.dead_letters import dead_letter_keys
from orchestration_queue.protocol.operations.moves import MovedJobs
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncQueueUpkeep"]

_JOBS_PER_CALL = 100
_RETRIES_PER_CALL = 100
"""Most jobs that one call retries or removes, so that it holds the server for less than 10 ms."""


class AsyncQueueUpkeep(AsyncQueueClient):
    """What can be done to a queue as a whole, and to jobs by their ids."""

    async def pause(self) -> None:
        """Ask the workers to take no more jobs. Running jobs go on. Node's workers never listen."""
        await self._connection.run(control.pause(self.keys))

    async def resume(self) -> None:
        """Let the workers take jobs again."""
        await run_and_wake(self._connection, self.keys, control.resume(self.keys))

    async def set_global_concurrency(self, limit: int | None) -> None:
        """Set the maximum jobs that all workers together run at a time; None sets no limit.

        Workers notice within seconds. Jobs that run go on, even if they are more.

        Raises:
            InvalidOptionError: The limit is no positive whole number.
        """
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InvalidOptionError(
                f"`limit` must be a whole number >= 1, or None for no limit; got {limit!r} "
                "(to stop the workers, pause the queue)."
            )
        await self._connection.execute(queue_settings.set_global_concurrency(self.keys, limit))

    async def set_global_rate_limit(self, limit: RateLimit | None) -> None:
        """Set the maximum job starts per window across all workers; None sets no limit.

        It goes before the workers' own limits. Workers notice within seconds.

        Raises:
            InvalidOptionError: It is no rate limit.
        """
        if limit is not None and not isinstance(limit, RateLimit):
            raise InvalidOptionError(f"`limit` must be a RateLimit, or None for no limit; got {limit!r}.")
        await self._connection.execute(queue_settings.set_global_rate_limit(self.keys, limit))

    async def configure(self, **settings: Unpack[QueueSettingsFields]) -> QueueSettings:
        """Set what holds for all jobs and workers of the queue; what is not named stays.

        Our workers and takers apply it within a tick, also to jobs that wait already. Of all this Node's workers know
        ``concurrency`` and ``rate_limit``, which are what :meth:`set_global_concurrency` and
        :meth:`set_global_rate_limit` set.

        Args:
            **settings: ``attempts``, ``backoff``, ``timeout``, ``remove_on_complete`` and ``remove_on_fail`` as of
                :class:`JobOptions`, for jobs that were added without them: a job's own go first, then its task's, then
                these. ``lease``, behind a job's own, before the workers'; ``dead_letter_queue``, before the workers'
                own. ``concurrency`` and ``rate_limit`` of all workers together. None removes a setting.

        Returns:
            All that is set now.

        Raises:
            InvalidNameError: The wire cannot carry the name of the dead-letter queue.
            InvalidOptionError: There is no such setting, its value is out of bounds, or the queue would hold its own
                dead letters. Nothing was changed.
        """
        changes = QueueSettings(**settings)
        if changes.dead_letter_queue is not None:
            dead_letter_keys(self.keys, changes.dead_letter_queue)
        if calls := queue_settings.set_settings(self.keys, changes):
            await self._connection.pipeline(calls, atomic=True)
            await wake(self._connection, self.keys)
        return await self.settings()

    async def settings(self) -> QueueSettings:
        """Return what :meth:`configure` set, and the limits that others set."""
        return await self._connection.look(queue_settings.settings(self.keys))

    async def rate_limit_group(self, key: str, duration: Duration) -> datetime:
        """Let jobs that wait for the limit of their ordering key wait longer, after a "too many requests" for instance.

        On this wire it binds those that are parked. A job that is not parked yet, or that follows at once when another
        of its key ends, starts nevertheless; give the key a rate limit of its own to hold these back, too.

        Args:
            key: The ordering key.
            duration: How long from now, a duration or seconds. A later end that was already set stays.

        Returns:
            When the group goes on.

        Raises:
            UsageError: The key is empty, or the duration not positive.
        """
        checked_text(key, "key")
        held = RateLimit(max=1, duration=checked_duration(duration, "duration")).duration
        return await self._connection.run(
            queue_settings.hold_group(self.keys, key, max(1, milliseconds(held)), now_ms())
        )

    async def signal(self, job_id: str, name: str, data: Any = None) -> bool:
        """Give a suspended job a signal and make it ready.

        Args:
            job_id: The job.
            name: What kind of signal it is.
            data: Its payload, anything JSON can say.

        Returns:
            Whether the job took it; False when it is not suspended, or not there.

        Raises:
            UsageError: The name is empty, or no text.
            PayloadError: The data is not JSON, or too large.
        """
        return await self._connection.run(
            control.signal(self.keys, checked_text(job_id, "job_id"), name, data, now_ms())
        )

    async def remove(self, job_id: str, *, force: bool = False) -> bool:
        """Remove a job in any state; False when it does not exist. A running handler is not stopped.

        Args:
            job_id: The job.
            force: Also while other jobs wait for it, which may then wait forever.

        Raises:
            StateError: Other jobs wait for it, and ``force`` is not given; nothing was removed.
        """
        remove = control.remove if checked_flag(force, "force") else edits.remove_unneeded
        return await self._connection.run(remove(self.keys, checked_text(job_id, "job_id")))

    async def cancel(self, job_id: str) -> Cancellation:
        """Cancel a job: it fails if it has not started, else its worker stops it.

        Raises:
            JobNotFoundError: It does not exist.
        """
        return await self._connection.run(control.cancel(self.keys, checked_text(job_id, "job_id"), now_ms()))

    async def retry_jobs(self, limit: int | None = None, kind: str | None = None) -> int:
        """Give failed jobs all their attempts again, oldest first. One exchange per 100 jobs.

        Args:
            limit: At most this many; None for all that have failed by now.
            kind: Only those of this kind of failure, as :meth:`failures` lists them. All failed jobs are read for that.

        Returns:
            How many were retried.

        Raises:
            UsageError: The limit is negative, or not a whole number; or the kind is no text.
        """
        most = checked_limit(limit)
        if kind is not None:
            return await self._retry_kind(checked_text(kind, "kind"), most)
        failed = await self._connection.look(queue_state.finished_count(self.keys, JobState.FAILED))
        left, done = failed if most is None else min(most, failed), 0
        while left > 0:
            done += await run_and_wake(
                self._connection, self.keys, control.retry_jobs(self.keys, min(left, _RETRIES_PER_CALL), now_ms())
            )
            left -= _RETRIES_PER_CALL
        return done

    async def _retry_kind(self, kind: str, limit: int | None) -> int:
        ids = await self._connection.follow(failures.failed_ids(self.keys, kind, limit))
        done = 0
        for some in chunks(ids, _RETRIES_PER_CALL):
            done += await self._connection.follow(failures.retries(self.keys, some, now_ms()))
            await wake(self._connection, self.keys)
        return done

    async def move_jobs(self, job_ids: Iterable[str], queue: str, *, delay: Duration | None = None) -> MovedJobs:
        """Move jobs that are not running to another queue, 100 in each four or five exchanges.

        As :meth:`Job.move` for each: with ids, history, tags and the jobs that wait for them. What cannot be moved is
        left as it is, and keeps no other. Interrupted, every job is in one of the queues; call it again.

        Args:
            job_ids: Their ids, as :meth:`search` finds them; :attr:`tags` moves the jobs of a tag.
            queue: The other queue's name.
            delay: When they are due there, counted from their arrival: a duration, or seconds; default: as they were.

        Returns:
            The ids of those that are there now, and why each other one is not.

        Raises:
            InvalidNameError: The wire cannot carry the queue's name.
            InvalidOptionError: The delay is negative, or no duration.
            UsageError: These are no ids, or it is this queue.
        """
        ids = [checked_text(each, "job_ids") for each in dict.fromkeys(checked_items(job_ids, str, "job_ids"))]
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
            kind: Only failed jobs of this kind of failure. All of them are read for that.

        Returns:
            The removed jobs' ids.

        Raises:
            UsageError: The grace or the limit is negative or of a wrong type, jobs in that state have not finished, or
                the kind is no text or the state not ``failed``.
        """
        cutoff_ms = now_ms() - milliseconds(checked_duration(grace, "grace"))
        finished = checked_finished(state, "can be cleaned")
        most = checked_limit(limit)
        if kind is not None:
            return await self._clean_kind(checked_kind(kind, finished), most, cutoff_ms)
        removed: list[str] = []
        while most is None or len(removed) < most:
            batch_size = _JOBS_PER_CALL if most is None else min(most - len(removed), _JOBS_PER_CALL)
            gone = await self._connection.run(control.clean(self.keys, finished, cutoff_ms, batch_size))
            removed += gone
            if len(gone) < batch_size:
                break
        return removed

    async def _clean_kind(self, kind: str, limit: int | None, cutoff_ms: int) -> list[str]:
        ids = await self._connection.follow(failures.failed_ids(self.keys, kind, limit, cutoff_ms))
        removed: list[str] = []
        for some in chunks(ids, _JOBS_PER_CALL):
            removed += await self._connection.run(failures.remove_finished(self.keys, JobState.FAILED, some))
        return removed

    async def drain(self, *, delayed: bool = False) -> int:
        """Remove every job that is ready by now, and with ``delayed`` those that are due later, 100 per call.

        Node's clients do it in one call, which blocks the server for seconds in a long queue. Here
        jobs that were not reached yet may start meanwhile; pause the queue before, if they must not.

        Returns:
            How many were removed.
        """
        checked_flag(delayed, "delayed")
        counts = await self._connection.follow(queue_state.counts(self.keys))
        left = counts.waiting + (counts.delayed if delayed else 0)
        removed, last = 0, 1
        while left > 0 and last > 0:
            last = await self._connection.run(control.drain(self.keys, min(left, _JOBS_PER_CALL), delayed=delayed))
            removed += last
            left -= last
        return removed

    async def obliterate(self, *, force: bool = False) -> int:
        """Remove the queue: every job, list, setting, schedule and number of it. There is no way back.

        Walks all keys of the queue's server, and removes them 1,000 at a time. Interrupted half-way, it leaves a queue
        from which no job starts any more; call it again. Workers that are alive go on with an empty queue; what comes
        of a job that one of them runs is discarded. Jobs that are added meanwhile may go, too.

        Args:
            force: Also while jobs are active.

        Returns:
            How many keys were removed.

        Raises:
            StateError: Jobs are active, and ``force`` is not given; nothing was removed.
        """
        active = 0 if checked_flag(force, "force") else await self._connection.follow(keyspace.active_jobs(self.keys))
        if active:
            raise StateError(
                f"Cannot obliterate queue {self.name!r}: {active} of its jobs are active; "
                "wait until they have finished, or pass force=True to discard what comes of them."
            )
        return await self._connection.follow(keyspace.remove_queue(self.keys))
