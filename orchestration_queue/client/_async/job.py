"""One job, from its adder's side: read it, wait for it, control it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from orchestration_queue.client._async.job_reading import AsyncJobReading
from orchestration_queue.client._async.listener import AsyncListener, AsyncWatch
from orchestration_queue.client._async.moving import destination
from orchestration_queue.client._async.waking import run_and_wake, wake
from orchestration_queue.client.checks import checked_flag, checked_items, checked_text
from orchestration_queue.client.values import Deadline, encode_data, event_outcome, outcome
from orchestration_queue.errors import JobNotFoundError, TransportError, UsageError
from orchestration_queue.options import Duration, JobOptions, Usage, checked_tags, milliseconds
from orchestration_queue.protocol.events import Event
from orchestration_queue.protocol.operations import control, edits, job_output, job_records, moves, tags, usage
from orchestration_queue.protocol.operations.control import Cancellation
from orchestration_queue.protocol.operations.notifications import notify_all
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import check_usage, report_usage_async
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncJob"]

_DEFAULT_WAIT = timedelta(seconds=30)
_PAUSE_S = 0.2
"""The pause before the next try of an unreachable server; each try has a timeout of its own."""
_AFTERMATH_S = 1.0
"""How long the last event of a job that is gone may take to be read."""


class AsyncJob(AsyncJobReading):
    """A job of a queue. Queues make these.

    Attributes:
        id: The job's id.
        is_new: False when adding met a job that was already there, by its id or its deduplication id.
    """

    async def wait(
        self,
        timeout: Duration | None = _DEFAULT_WAIT,  # noqa: ASYNC109  both faces have it
        *,
        watch: AsyncWatch | None = None,
    ) -> Any:
        """Wait until the job has finished. Any number of waits share one connection.

        An outage of the server is survived, as long as there is time left.

        Args:
            timeout: A duration, or seconds; default 30 s; None waits forever.
            watch: A watch on the queue that began before the job was added, so that nothing can be missed even of a
                job that is not kept.

        Returns:
            What its handler returned.

        Raises:
            JobFailedError: It failed for good, or was removed before it finished.
            JobNotFoundError: It is not there any more: it finished (or was removed) before this call.
            TimeoutError: The time is up. The job goes on.
            TransportError: The server could not be reached at the beginning, or in the end.
            UsageError: The client was closed meanwhile.
        """
        deadline = Deadline(timeout)
        if watch is not None and self.is_new:
            watch.focus(self.id)
            return await self._follow(watch, deadline)
        # The watch reads the record once it hears: no ending is missed between the two.
        async with self._connection.extension(AsyncListener).watch(self._keys, self.id) as own:
            self._record = record = self._found(own.record)
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
                    # Of a job that is not kept, only its events say how it ended.
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
            JobNotFoundError: It is not there any more.
        """
        calls = job_output.progress(self._keys, self.id, progress)
        await self.read_state()
        await self._connection.pipeline(calls)

    async def log(self, text: str, *more: str) -> None:
        """Append a line to the job's log, or several in one exchange.

        Raises:
            UsageError: A line is no text.
            PayloadError: A line is larger than 1 MiB.
            JobNotFoundError: It is not there any more.
        """
        call = job_output.log(self._keys, self.id, (text, *more))
        await self.read_state()
        await self._connection.execute(call)

    async def report_usage(self, used: Usage) -> None:
        """Store what the job used, in place of what was reported before, and count it for its queue.

        Raises:
            InvalidOptionError: It is no :class:`Usage`.
            JobNotFoundError: The job is not there any more.
            StateError: A client of another language was half-way through a report for 5 s.
        """
        check_usage(used)
        await report_usage_async(self._connection, self._keys, self.id, used)

    async def report_tokens(self, tokens: int) -> None:
        """Store how many tokens the job spent, for the workers' token limit, in place of what was said before.

        Raises:
            UsageError: It is no number of tokens.
            JobNotFoundError: It is not there any more.
        """
        call = usage.report_tokens(self._keys, self.id, tokens)
        await self.refresh()
        await self._connection.execute(call)

    async def signal(self, name: str, data: Any = None) -> bool:
        """Resume the job if it is suspended; its handler finds the signal in ``job.signals``.

        Args:
            name: What kind of signal it is.
            data: Its payload, anything JSON can say.

        Returns:
            False when the job is not suspended: only the first signal counts, and none that comes too early.

        Raises:
            UsageError: The name is no text, or empty.
            PayloadError: The data is not JSON, or larger than 1 MiB.
        """
        return await self._connection.run(control.signal(self._keys, self.id, name, data, now_ms()))

    async def remove(self, *, force: bool = False) -> bool:
        """Remove the job in any state; return False if it was already gone. A running handler is not stopped.

        Args:
            force: Also while other jobs wait for it, which may then wait forever.

        Raises:
            StateError: Other jobs wait for it, and ``force`` is not given; nothing was removed.
        """
        remove = control.remove if checked_flag(force, "force") else edits.remove_unneeded
        return await self._connection.run(remove(self._keys, self.id))

    async def release(self) -> None:
        """Take the running job from its worker and make it ready again, without counting an attempt.

        Its worker cannot settle it any more and, one of this library, is told to stop its handler. A handler that does
        not heed that may still run when the job starts again.

        Raises:
            JobNotFoundError: It is not there any more.
            StateError: It is not active.
        """
        await run_and_wake(self._connection, self._keys, edits.release(self._keys, self.id, now_ms()))

    async def depends(self, on: Iterable[str] = (), off: Iterable[str] = ()) -> None:
        """Change which jobs of its queue the job waits for, while it waits for others and has not run.

        One that has ended by now counts as it ended. A job that then waits for nothing starts. Repeating a call changes
        nothing more.

        Args:
            on: Ids of jobs that it waits for from now on.
            off: Ids of jobs that it waits for no more. Together at most 100.

        Raises:
            UsageError: These are no ids, more than 100, or the job's own.
            JobNotFoundError: The job, or one that it should wait for, does not exist; nothing was changed.
            StateError: It does not wait for others or has run, or would wait for itself through others; nothing was
                changed.
        """
        added, removed = _checked_edges(self.id, on, "on"), _checked_edges(self.id, off, "off")
        if len(added) + len(removed) > edits.MOST_EDGES:
            raise UsageError(
                f"`on` and `off` together name more than {edits.MOST_EDGES} jobs; pass them in several calls."
            )
        now = now_ms()
        pending = await run_and_wake(
            self._connection, self._keys, edits.change_dependencies(self._keys, self.id, now, added, removed)
        )
        if pending:
            await self._connection.follow(notify_all([(self._keys, pending)], now))

    async def move(self, queue: str, *, delay: Duration | None = None) -> AsyncJob:
        """Move a job that is not running to another queue, on whatever node of a cluster; returns it as it is there.

        It keeps its id, history, log, tags, tracking, and the jobs that wait for it. Its deduplication id stays behind.
        Callers that wait for it in its old queue see it removed. Should this process die, a worker of either
        queue goes on with the move after 10 s. Meanwhile it runs in neither, and what happens to it goes along: a
        cancel, new data, a job that begins to wait for it. A repeated call changes nothing.

        Args:
            queue: The other queue's name.
            delay: When it is due there, counted from its arrival: a duration, or seconds; default: as it was.

        Raises:
            InvalidNameError: The wire cannot carry the queue's name.
            InvalidOptionError: The delay is negative, or no duration.
            UsageError: It is the job's own queue.
            JobNotFoundError: The job is not there any more.
            StateError: It is active, suspended, parked, completed, or waits for others; belongs to a flow or an
                ordering group; or another job has its id there. It was left as it is.
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
            JobNotFoundError: It is not there any more.
        """
        return await self._connection.run(control.cancel(self._keys, self.id, now_ms()))

    async def retry(self) -> None:
        """Give a failed job all its attempts again, due at once.

        Raises:
            JobNotFoundError: It is not there any more.
            StateError: It has not failed.
        """
        await run_and_wake(self._connection, self._keys, control.retry(self._keys, self.id, now_ms()))

    async def promote(self) -> None:
        """Make a delayed job ready now.

        Raises:
            JobNotFoundError: It is not there any more.
            StateError: It is not delayed.
        """
        await run_and_wake(self._connection, self._keys, control.promote_job(self._keys, self.id))

    async def change_priority(self, priority: int) -> None:
        """Give a job that has not started another priority.

        Args:
            priority: 1 is the most urgent, 2048 the least; 0 takes it out of the order, into the plain queue.

        Raises:
            InvalidOptionError: There is no such priority.
            JobNotFoundError: It is not there any more.
            StateError: It has started.
        """
        checked = JobOptions(priority=priority).priority
        await run_and_wake(self._connection, self._keys, control.change_priority(self._keys, self.id, checked))

    async def change_delay(self, delay: Duration) -> None:
        """Make a job that has not started ready at another time.

        Args:
            delay: Counted from now: a duration, or seconds.

        Raises:
            InvalidOptionError: The delay is negative, or no duration.
            JobNotFoundError: It is not there any more.
            StateError: It has started.
        """
        delay_ms = milliseconds(JobOptions(delay=delay).delay)
        await run_and_wake(self._connection, self._keys, control.change_delay(self._keys, self.id, delay_ms, now_ms()))

    async def tag(self, *names: str) -> None:
        """Add tags to the job; it is left as it is where it has them.

        Raises:
            InvalidOptionError: One of them is no tag, or there are more than 20.
            JobNotFoundError: It is not there any more.
            StateError: It would have more than 20 tags.
        """
        added = checked_tags(names)
        await self._connection.run(tags.retag(self._keys, self.id, now_ms(), added=added))
        self._show_tags([*self.tags, *added])

    async def untag(self, *names: str) -> None:
        """Remove tags from the job.

        Raises:
            InvalidOptionError: One of them is no tag, or there are more than 20.
            JobNotFoundError: It is not there any more.
        """
        removed = checked_tags(names)
        await self._connection.run(tags.retag(self._keys, self.id, now_ms(), removed=removed))
        self._show_tags([tag for tag in self.tags if tag not in removed])

    def _show_tags(self, names: Iterable[str]) -> None:
        self._record = JobRecord(self.id, {**self.record.fields, "tags": json.dumps(list(dict.fromkeys(names)))})

    async def track(self) -> None:
        """Keep the job, with its history and logs, when retention would remove it; and list it in ``queue.tracked()``.

        Its history tells completed attempts, too, of workers that start it from then on. At most 1,000 jobs of a queue
        are tracked. Explicit acts (``remove``, ``clean``, ``obliterate``) and workers of other libraries remove a
        tracked job like any other.

        Raises:
            JobNotFoundError: It is not there any more.
            StateError: 1,000 jobs of the queue are tracked already.
        """
        await self._connection.run(edits.track(self._keys, self.id, now_ms(), is_tracked=True))

    async def untrack(self) -> None:
        """Keep the job no longer than others; one that retention has let go of by now is removed.

        Raises:
            JobNotFoundError: It is not there any more.
        """
        await self._connection.run(edits.track(self._keys, self.id, now_ms(), is_tracked=False))

    async def update_data(self, data: Any) -> None:
        """Replace the job's payload; an attempt that is running keeps what it was given.

        Raises:
            PayloadError: The data is not JSON, or too large.
            JobNotFoundError: It is not there any more.
        """
        encoded = encode_data(self.record.name or self.id, data)
        await self._connection.run(control.update_data(self._keys, self.id, encoded))
        self._record = JobRecord(self.id, {**self.record.fields, "data": encoded})


def _checked_edges(job_id: str, named: Iterable[str], what: str) -> list[str]:
    ids = [checked_text(each, what) for each in dict.fromkeys(checked_items(named, str, what))]
    if job_id in ids:
        raise UsageError(f"Job {job_id!r} cannot wait for itself; leave it out of `{what}`.")
    return ids
