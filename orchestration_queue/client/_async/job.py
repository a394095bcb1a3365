"""One job, from its adder's side: look at it, wait for it, steer it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from orchestration_queue.client._async.channel import AsyncChannel
from orchestration_queue.client._async.events import AsyncEventReader
from orchestration_queue.client.values import ENDINGS, Deadline, encode_data, event_outcome, outcome
from orchestration_queue.errors import JobNotFoundError
from orchestration_queue.options import JobOptions, milliseconds
from orchestration_queue.protocol.events import Event
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import control, reading
from orchestration_queue.protocol.operations.control import Revocation
from orchestration_queue.protocol.operations.steps import all_good
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncJob"]

_DEFAULT_WAIT = timedelta(seconds=30)


class AsyncJob:
    """A job of a queue. Queues make these; there is no need to.

    Attributes:
        id: The job's id.
        is_new: False when adding met a job that was already there, by its id or its deduplication id.
    """

    def __init__(
        self,
        channel: AsyncChannel,
        keys: QueueKeys,
        job_id: str,
        record: JobRecord | Callable[[], JobRecord],
        *,
        is_new: bool = False,
    ) -> None:
        self._channel = channel
        self._keys = keys
        self._record = record
        self.id = job_id
        self.is_new = is_new

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of queue {self.queue}, {self.record.state}>"

    @property
    def record(self) -> JobRecord:
        """The job as it was last read; of a job that was just added, as it was sent."""
        if not isinstance(self._record, JobRecord):
            self._record = self._record()
        return self._record

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._keys.queue

    @property
    def ref(self) -> ParentRef:
        """What a job that this one shall wait for names as its ``parent``."""
        return ParentRef(self._keys, self.id)

    async def refresh(self) -> JobRecord:
        """Read the job again.

        Raises:
            JobNotFoundError: It is not there any more.
        """
        self._record = self._found(await self._channel.look(reading.job(self._keys, self.id)))
        return self.record

    def _found(self, record: JobRecord | None) -> JobRecord:
        if record is None:
            raise JobNotFoundError(self.queue, self.id)
        return record

    async def wait(self, timeout: timedelta | float | None = _DEFAULT_WAIT) -> Any:  # noqa: ASYNC109  both faces have it
        """Wait until the job has finished.

        Args:
            timeout: A duration, or seconds; default 30 s; None waits for ever.

        Returns:
            What its handler returned.

        Raises:
            JobFailedError: It failed for good, or was removed before it finished.
            JobNotFoundError: It is not there any more: it finished (or was removed) before this call.
            TimeoutError: The time is up. The job goes on.
        """
        deadline = Deadline(timeout)
        newest, found = reading.last_event_id(self._keys), reading.job(self._keys, self.id)
        # The cursor before the record: whatever happens after the record was read, comes after the cursor.
        replies = all_good(await self._channel.pipeline([newest.call, found.call], repeatable=True))
        self._record = self._found(found.read(replies[1]))
        if self.record.is_finished:
            return outcome(self.queue, self.record)
        async with AsyncEventReader(self._channel, {self._keys: newest.read(replies[0])}) as events:
            return await self._follow(events, deadline)

    async def _follow(self, events: AsyncEventReader, deadline: Deadline) -> Any:
        while True:
            ending = await self._next_ending(events, Deadline(deadline.left))
            record = await self._channel.look(reading.job(self._keys, self.id))
            if record is None:
                # Of a job that is not kept, only its events tell how it ended.
                ending = ending or await self._next_ending(events, Deadline(0))
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

    async def _next_ending(self, events: AsyncEventReader, wait: Deadline) -> Event | None:
        """The next event that may have finished the job; None when the wait is over without one."""
        while True:
            mine = [event for _, event in await events.read(wait.left) if event.job_id == self.id]
            if endings := [event for event in mine if event.type in ENDINGS]:
                # A job may be removed after its outcome was told; the outcome is what counts.
                return next((event for event in reversed(endings) if event.type != "removed"), endings[-1])
            if wait.has_passed:
                return None

    async def logs(self, start: int = 0, end: int = -1) -> list[str]:
        """The lines its handlers logged, ``start`` to ``end`` inclusive; -1 stands for the last."""
        return await self._channel.look(reading.logs(self._keys, self.id, start, end))

    async def remove(self) -> bool:
        """Remove the job, wherever it is; False when it was gone already. A running handler is not stopped."""
        return await self._channel.run(control.remove(self._keys, self.id))

    async def revoke(self) -> Revocation:
        """Withdraw the job: it fails if it has not started, else it is flagged.

        Raises:
            JobNotFoundError: It is not there any more.
        """
        return await self._channel.run(control.revoke(self._keys, self.id, now_ms()))

    async def retry(self) -> None:
        """Give a failed job all its attempts again, due at once.

        Raises:
            JobNotFoundError: It is not there any more.
            StateError: It has not failed.
        """
        await self._channel.run(control.retry(self._keys, self.id, now_ms()))

    async def promote(self) -> None:
        """Make a delayed job ready now.

        Raises:
            JobNotFoundError: It is not there any more.
            StateError: It is not delayed.
        """
        await self._channel.run(control.promote_job(self._keys, self.id))

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
        await self._channel.run(control.change_priority(self._keys, self.id, checked))

    async def change_delay(self, delay: timedelta | float) -> None:
        """Make a job that has not started ready at another time.

        Args:
            delay: Counted from now: a duration, or seconds.

        Raises:
            InvalidOptionError: The delay is negative, or no duration.
            JobNotFoundError: It is not there any more.
            StateError: It has started.
        """
        delay_ms = milliseconds(JobOptions(delay=delay).delay)
        await self._channel.run(control.change_delay(self._keys, self.id, delay_ms, now_ms()))

    async def update_data(self, data: Any) -> None:
        """Replace the job's payload; an attempt that is running keeps what it was given.

        Raises:
            PayloadError: The data is not JSON, or too large.
            JobNotFoundError: It is not there any more.
        """
        encoded = encode_data(self.record.name or self.id, data)
        await self._channel.run(control.update_data(self._keys, self.id, encoded))
        self._record = JobRecord(self.id, {**self.record.fields, "data": encoded})
