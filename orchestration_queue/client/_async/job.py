"""A handle on one job: read it, wait for it, control it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestration_queue.client._async.job_reading import AsyncJobReading
from orchestration_queue.client._async.listener import AsyncListener, AsyncWatch
from orchestration_queue.client._async.waking import destination, run_and_wake, wake
from orchestration_queue.client.checks import check_flag, check_items, check_text
from orchestration_queue.client.values import Deadline, encode_data, event_outcome, outcome
from orchestration_queue.errors import JobNotFoundError, TransportError, UsageError
from orchestration_queue.options import Duration, JobOptions, Usage, check_tags, milliseconds
from orchestration_queue.options.habits import JOB_HABITS, advise
from orchestration_queue.protocol.operations import control, job_output, job_records, moves, steps, suspension, usage
from orchestration_queue.protocol.operations.control import Cancellation
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.protocol.operations.notifications import notify_all
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import check_usage, report_usage_async
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncJob"]

_DEFAULT_WAIT = timedelta(seconds=30)
_PAUSE_S = 0.2
"""How long to pause before an unreachable server is tried again; each try has its own timeout."""
_AFTERMATH_S = 1.0
"""How long to wait for the last event of a job that no longer exists."""


class AsyncJob(AsyncJobReading):
    """A job of a queue, as returned by the queue's methods.

    Attributes:
        id: The job's id.
        is_new: False if adding it found an existing job with its id or deduplication id.
    """

    if not TYPE_CHECKING:
        __getattr__ = advise(JOB_HABITS)

    async def wait(
        self,
        timeout: Duration | None = _DEFAULT_WAIT,  # noqa: ASYNC109  both faces have it
        *,
        watch: AsyncWatch | None = None,
    ) -> Any:
        """Wait until the job has finished. Any number of waits share one connection.

        The wait survives an outage of the server that ends before the timeout.

        Args:
            timeout: A duration, or seconds; default 30 s; None waits forever.
            watch: A watch on the queue that began before the job was added, so that nothing is missed even of a job
                that is not kept.

        Returns:
            What its handler returned.

        Raises:
            JobFailedError: The job failed for good, or was removed before it finished.
            JobNotFoundError: The job had finished and was not kept, or was removed, before this call.
            TimeoutError: The timeout expired. The job continues.
            TransportError: The server was unreachable at the start, or at the end of the timeout.
            UsageError: The client was closed meanwhile.
        """
        deadline = Deadline(timeout)
        if watch is not None and self.is_new:
            watch.focus(self.id)
            return await self._follow(watch, deadline)
        # The watch listens before it reads the record, so no end is missed between the two.
        async with self._connection.extension(AsyncListener).watch(self._keys, self.id) as own:
            self._record = record = self._require(own.record)
            if record.is_finished:
                return outcome(self.queue, record)
            return await self._follow(own, deadline)

    async def _follow(self, watch: AsyncWatch, deadline: Deadline) -> Any:
        ending: Event | None = None
        while True:
            try:
                heard = await watch.next_ending(Deadline(deadline.left))
                ending = heard or ending
                record = await self._connection.look(job_records.job(self._keys, self.id))
                if record is None and heard is None:
                    # The outcome of a job that is not kept is only in its events.
                    ending = await watch.next_ending(Deadline(_AFTERMATH_S)) or ending
            except TransportError:
                if deadline.has_passed or self._connection.is_closed:
                    raise
                await asyncio.sleep(min(deadline.left, _PAUSE_S))
                continue
            if record is None:
                if ending is None:
                    raise JobNotFoundError(self.queue, self.id)
                return event_outcome(self.queue, ending)
            self._record = record
            if self.record.is_finished:
                return outcome(self.queue, self.record)
            if deadline.has_passed:
                raise TimeoutError(
                    f"Job {self.id!r} of queue {self.queue!r} is still {self.record.state} "
                    f"after {deadline.seconds:g} s; wait longer, or check that a worker serves the queue."
                )

    async def update_progress(self, progress: Any) -> None:
        """Store the job's progress, a number or any JSON, and publish it as an event.

        Raises:
            PayloadError: It is not JSON, or larger than 1 MiB.
            JobNotFoundError: The job no longer exists.
        """
        call = job_output.progress(self._keys, self.id, progress)
        await self.read_state()
        await self._connection.execute(call)

    async def log(self, text: str, *more: str) -> None:
        """Append one or more lines to the job's log in one exchange.

        Raises:
            UsageError: A line is not a string.
            PayloadError: A line is larger than 1 MiB.
            JobNotFoundError: The job no longer exists.
        """
        call = job_output.log(self._keys, self.id, (text, *more))
        await self.read_state()
        await self._connection.execute(call)

    async def report_usage(self, used: Usage) -> None:
        """Store what the job used, replacing an earlier report, and add it to the queue's usage.

        Raises:
            InvalidOptionError: ``usage`` is not a :class:`Usage`.
            JobNotFoundError: The job no longer exists.
            StateError: A client in another language held the usage lock for 5 s.
        """
        check_usage(used)
        await report_usage_async(self._connection, self._keys, self.id, used)

    async def report_tokens(self, tokens: int) -> None:
        """Store how many tokens the job spent, for the workers' token limit. Replaces an earlier report.

        Raises:
            UsageError: It is not a number of tokens.
            JobNotFoundError: The job no longer exists.
        """
        call = usage.report_tokens(self._keys, self.id, tokens)
        await self.refresh()
        await self._connection.execute(call)

    async def signal(self, name: str, data: Any = None) -> bool:
        """Resume the job if it is suspended; its handler finds the signal in ``job.signals``.

        Args:
            name: What kind of signal it is.
            data: Its payload, anything JSON can represent.

        Returns:
            False if the job is not suspended: a signal that comes too early, or after the first, has no effect.

        Raises:
            UsageError: The name is empty or not a string.
            PayloadError: The data is not JSON, or larger than 1 MiB.
        """
        return await self._connection.run(suspension.signal(self._keys, self.id, name, data, now_ms()))

    async def forget_step(self, name: str, *, following: bool = False) -> int:
        """Remove a durable step's stored outcome, so that the job's next attempt runs it again.

        Args:
            name: The step.
            following: Also forget the steps that were stored after it.

        Returns:
            How many steps were forgotten.

        Raises:
            UsageError: No step can have this name.
            JobNotFoundError: The job no longer exists.
            NotFoundError: The job has no such step.
            StateError: The job is running, or on the move to another queue.
        """
        forget = steps.forget_steps(
            self._keys, self.id, steps.check_step_name(name), following=check_flag(following, "following")
        )
        return await self._connection.follow(forget)

    async def remove(self, *, force: bool = False) -> bool:
        """Remove the job in any state; return False if it was already gone. A running handler is not stopped.

        Args:
            force: Remove it even if other jobs wait for it, which may then wait forever.

        Raises:
            StateError: Other jobs wait for it, and ``force`` is not given; nothing was removed.
        """
        remove = control.remove if check_flag(force, "force") else control.remove_unneeded
        return await self._connection.run(remove(self._keys, self.id))

    async def release(self) -> None:
        """Take the running job from its worker and make it ready again, without counting an attempt.

        Its worker can no longer settle it. A worker of this library stops the handler; a handler that ignores this may
        still be running when the job starts again.

        Raises:
            JobNotFoundError: The job no longer exists.
            StateError: The job is not active.
        """
        await run_and_wake(self._connection, self._keys, control.release(self._keys, self.id, now_ms()))

    async def depends(self, on: Iterable[str] = (), off: Iterable[str] = ()) -> None:
        """Change which jobs of its queue the job waits for, while it waits for others and has not run.

        A dependency that has already ended counts with its outcome. A job without remaining dependencies starts.
        Repeating a call changes nothing more.

        Args:
            on: Ids of jobs to wait for from now on.
            off: Ids of jobs to stop waiting for. Together with ``on`` at most 100.

        Raises:
            UsageError: These are not ids, more than 100, or include the job's own.
            JobNotFoundError: The job, or one that it should wait for, does not exist; nothing was changed.
            StateError: The job does not wait for others, has run, or would wait for itself through others; nothing was
                changed.
        """
        added, removed = _check_edges(self.id, on, "on"), _check_edges(self.id, off, "off")
        if len(added) + len(removed) > control.MOST_EDGES:
            raise UsageError(
                f"`on` and `off` together name more than {control.MOST_EDGES} jobs; pass them in several calls."
            )
        now = now_ms()
        pending = await run_and_wake(
            self._connection, self._keys, control.change_dependencies(self._keys, self.id, now, added, removed)
        )
        if pending:
            await self._connection.follow(notify_all([(self._keys, pending)], now))

    async def move(self, queue: str, *, delay: Duration | None = None) -> AsyncJob:
        """Move a job that is not running to another queue, on any server of a cluster; return the moved job.

        It keeps its id, history, log, tags, tracking, and the jobs that wait for it, but not its deduplication id.
        Callers that wait for it in its old queue see it removed. If this process dies, a worker of either queue
        continues the move after 10 s. Until then the job runs in neither queue, and changes to it (a cancellation, new
        data, a new dependent) move with it. Repeating a call changes nothing.

        Args:
            queue: The other queue's name.
            delay: When it is due there, counted from its arrival: a duration, or seconds; default: as before.

        Raises:
            InvalidNameError: The queue's name is invalid.
            InvalidOptionError: The delay is negative, or not a duration.
            UsageError: It is the job's own queue.
            JobNotFoundError: The job no longer exists.
            StateError: The job is active, suspended, parked, completed, or waits for others; it belongs to a flow or an
                ordering group; or another job has its id there. It was not changed.
        """
        target, delay_ms = destination(self._keys, queue, delay)
        await self._connection.follow(moves.move(self._keys, target, self.id, now_ms(), delay_ms))
        await wake(self._connection, target)
        moved = AsyncJob(self._connection, target, self.id, self.record)
        await moved.refresh()
        return moved

    async def cancel(self) -> Cancellation:
        """Cancel the job: it fails if it has not started; otherwise its worker stops it.

        Raises:
            JobNotFoundError: The job no longer exists.
        """
        return await self._connection.run(control.cancel(self._keys, self.id, now_ms()))

    async def retry(self, *, from_step: str | None = None) -> None:
        """Make a failed job ready now, with all its attempts. It continues after its last durable step.

        Args:
            from_step: Forget this step first, and those that were stored after it.

        Raises:
            UsageError: No step can have this name.
            JobNotFoundError: The job no longer exists.
            NotFoundError: The job has no such step.
            StateError: The job has not failed.
        """
        # Before the retry: once it is ready, a worker may start the job at any time.
        if from_step is not None:
            step = steps.check_step_name(from_step)
            if await self.read_state() is JobState.FAILED:
                await self.forget_step(step, following=True)
        await run_and_wake(self._connection, self._keys, control.retry(self._keys, self.id, now_ms()))

    async def promote(self) -> None:
        """Make a delayed job ready now.

        Raises:
            JobNotFoundError: The job no longer exists.
            StateError: The job is not delayed.
        """
        await run_and_wake(self._connection, self._keys, control.promote_job(self._keys, self.id))

    async def change_priority(self, priority: int) -> None:
        """Change the priority of a job that has not started.

        Args:
            priority: From 1, the most urgent, to 2048; 0 moves it to the plain queue.

        Raises:
            InvalidOptionError: The priority is out of range.
            JobNotFoundError: The job no longer exists.
            StateError: The job has started.
        """
        checked = JobOptions(priority=priority).priority
        await run_and_wake(self._connection, self._keys, control.change_priority(self._keys, self.id, checked))

    async def change_delay(self, delay: Duration) -> None:
        """Change when a job that has not started becomes ready.

        Args:
            delay: Counted from now: a duration, or seconds.

        Raises:
            InvalidOptionError: The delay is negative, or not a duration.
            JobNotFoundError: The job no longer exists.
            StateError: The job has started.
        """
        delay_ms = milliseconds(JobOptions(delay=delay).delay)
        await run_and_wake(self._connection, self._keys, control.change_delay(self._keys, self.id, delay_ms, now_ms()))

    async def tag(self, *names: str) -> None:
        """Add tags to the job. Tags that it already has are kept.

        Raises:
            InvalidOptionError: A tag is invalid, or there are more than 20.
            JobNotFoundError: The job no longer exists.
            StateError: It would have more than 20 tags.
        """
        added = check_tags(names)
        await self._connection.run(control.retag(self._keys, self.id, now_ms(), added=added))
        self._show_tags([*self.tags, *added])

    async def untag(self, *names: str) -> None:
        """Remove tags from the job.

        Raises:
            InvalidOptionError: A tag is invalid, or there are more than 20.
            JobNotFoundError: The job no longer exists.
        """
        removed = check_tags(names)
        await self._connection.run(control.retag(self._keys, self.id, now_ms(), removed=removed))
        self._show_tags([tag for tag in self.tags if tag not in removed])

    def _show_tags(self, names: Iterable[str]) -> None:
        self._record = JobRecord(self.id, {**self.record.fields, "tags": json.dumps(list(dict.fromkeys(names)))})

    async def track(self) -> None:
        """Keep the job, with its history and logs, when retention would remove it, and list it in ``queue.tracked()``.

        Its history then also contains completed attempts, of workers that start it from now on. A queue can track up to
        1,000 jobs. Explicit removal (``remove``, ``clean``, ``obliterate``) and workers of other libraries remove a
        tracked job like any other.

        Raises:
            JobNotFoundError: The job no longer exists.
            StateError: The queue already tracks 1,000 jobs.
        """
        await self._connection.run(control.track(self._keys, self.id, now_ms(), is_tracked=True))

    async def untrack(self) -> None:
        """Stop tracking the job. If retention would have removed it by now, it is removed.

        Raises:
            JobNotFoundError: The job no longer exists.
        """
        await self._connection.run(control.track(self._keys, self.id, now_ms(), is_tracked=False))

    async def update_data(self, data: Any) -> None:
        """Replace the job's payload. A running attempt keeps the payload it started with.

        Raises:
            PayloadError: The data is not JSON, or larger than 1 MiB.
            JobNotFoundError: The job no longer exists.
        """
        encoded = encode_data(self.record.name or self.id, data)
        await self._connection.run(control.update_data(self._keys, self.id, encoded))
        self._record = JobRecord(self.id, {**self.record.fields, "data": encoded})


def _check_edges(job_id: str, named: Iterable[str], what: str) -> list[str]:
    ids = [check_text(each, what) for each in dict.fromkeys(check_items(named, str, what))]
    if job_id in ids:
        raise UsageError(f"Job {job_id!r} cannot wait for itself; leave it out of `{what}`.")
    return ids
