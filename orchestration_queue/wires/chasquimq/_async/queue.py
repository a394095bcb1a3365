"""A ChasquiMQ queue, for producers and operators."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from orchestration_queue.errors import JobFailedError, ServerError, UsageError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.server import ServerUrl
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.chasquimq._async.client import AsyncChasquiClient, AsyncChasquiEvents
from orchestration_queue.wires.chasquimq._async.dead_letters import AsyncChasquiDeadLetters
from orchestration_queue.wires.chasquimq._async.schedules import AsyncChasquiSchedules
from orchestration_queue.wires.chasquimq.checks import check_count, check_id, check_ids, duration_ms
from orchestration_queue.wires.chasquimq.entries import (
    ChasquiCounts,
    ChasquiDeadLetter,
    count_calls,
    read_counts,
    read_delayed,
    read_jobs,
)
from orchestration_queue.wires.chasquimq.envelope import BackoffSpec
from orchestration_queue.wires.chasquimq.jobs import (
    MAX_LENGTH,
    ChasquiJob,
    JobBuilder,
    NewChasquiJob,
    PreparedJob,
)
from orchestration_queue.wires.chasquimq.keys import ulids
from orchestration_queue.wires.chasquimq.packing import unpack

__all__ = ["AsyncChasquiQueue"]

_BATCH = 256
"""How many jobs go to the server at once."""
_PAGE = 100
_BLOCK_S = 5.0


class AsyncChasquiQueue(AsyncChasquiDeadLetters, AsyncChasquiSchedules, AsyncChasquiClient):
    """A queue of ChasquiMQ, shared with its Rust, Node and Python processes. It connects when first used.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        max_length: About how many jobs the queue may hold; beyond it the server drops the oldest.

    Raises:
        UsageError: The name is empty, or the URL is invalid.

    Attributes:
        name: The queue's name.
        keys: The queue's keys.
    """

    def __init__(self, name: str, *, url: str | ServerUrl | None = None, max_length: int = MAX_LENGTH) -> None:
        super().__init__(name, url=url)
        self._max_length = check_count(max_length, "max_length")

    async def add(
        self,
        name: str,
        data: Any = None,
        *,
        delay: Duration | None = None,
        delay_until: datetime | None = None,
        attempts: int | None = None,
        backoff: BackoffSpec | Duration | None = None,
        job_id: str | None = None,
    ) -> ChasquiJob:
        """Add a job.

        Args:
            name: Its name, up to 256 bytes; may be empty.
            data: Anything that MessagePack can carry.
            delay: How long it waits before it may run: a duration, or seconds.
            delay_until: When it may run, instead of `delay`.
            attempts: How often its handler may run; default: the worker's option.
            backoff: The pauses between attempts; a duration, or seconds, for equal ones; default: the worker's option.
            job_id: Its id. While it waits, and for an hour longer, further jobs with this id are not added.

        Returns:
            The job; ``is_new`` is False if its id was taken and nothing was added.

        Raises:
            UsageError: A value is invalid; nothing was sent.
        """
        new = NewChasquiJob(name, data, delay, delay_until, attempts, backoff, job_id)
        return await self._send(self._prepare(new))

    async def _send(self, prepared: PreparedJob) -> ChasquiJob:
        if len(prepared.calls) == 1:
            return prepared.added(await self._execute(prepared.calls[0]))
        return prepared.added((await self._pipeline(prepared.calls))[-1])

    async def add_bulk(self, jobs: Iterable[NewChasquiJob]) -> list[ChasquiJob]:
        """Add many jobs, each batch built while the server works on the last. All are checked before any is sent.

        Returns:
            A job for each one given, in the same order.

        Raises:
            UsageError: A value is invalid; none was sent.
            ServerError: The server refused a job; others were added.
        """
        if not isinstance(jobs, Iterable):
            raise UsageError(f"`jobs` must be a list, got {jobs!r}; pass `[NewChasquiJob('send')]`.")
        builder = self._builder()
        checked = [builder.check(new) for new in jobs]
        if not checked:
            return []
        prepared: list[PreparedJob] = []

        def batches() -> Iterator[list[Call]]:
            for first in range(0, len(checked), _BATCH):
                batch = [builder.build(job) for job in checked[first : first + _BATCH]]
                prepared.extend(batch)
                yield [call for job in batch for call in job.calls]

        # Each is built while the server works on the previous one.
        answers = await (await self._connection()).pipelines(batches())
        replies = chain.from_iterable(answers)
        added: list[ChasquiJob] = []
        for job in prepared:
            reply = next(replies)
            for _ in job.calls[1:]:
                reply = reply if isinstance(reply, ServerError) else next(replies)
            added.append(job.added(reply))  # raises for a refused job, after which replies may be missing
        return added

    async def add_and_wait(
        self,
        name: str,
        data: Any = None,
        *,
        timeout: Duration = 30.0,  # noqa: ASYNC109  both faces have it
        attempts: int | None = None,
        backoff: BackoffSpec | Duration | None = None,
    ) -> Any:
        """Add a job and wait until it has ended.

        Args:
            name: Its name, up to 256 bytes; may be empty.
            data: Anything that MessagePack can carry.
            timeout: How long to wait: a duration, or seconds.
            attempts: How often its handler may run; default: the worker's option.
            backoff: The pauses between attempts; default: the worker's option.

        Returns:
            What its handler returned, if its worker keeps results; otherwise None. A worker of the original may report
            a completion shortly before it stores the result.

        Raises:
            UsageError: A value is invalid; nothing was sent.
            JobFailedError: The job failed for good.
            TimeoutError: The timeout expired. The job continues.
        """
        wait_s = duration_ms(timeout, "timeout") / 1000
        prepared = self._prepare(NewChasquiJob(name, data, attempts=attempts, backoff=backoff))
        # Before the job is sent, so that its end cannot be missed.
        async with AsyncChasquiEvents(self.name, url=self._url) as events:
            after = await events.start()
        job = await self._send(prepared)
        return await self.wait(job.id, after=after, timeout=wait_s)

    async def wait(self, job_id: str, *, after: str, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109  both faces have it
        """Wait until a job has ended.

        Args:
            job_id: The job's id.
            after: The cursor of :class:`ChasquiEvents` when the job was added, or earlier.
            timeout: How long to wait: a duration, or seconds; None for no limit.

        Returns:
            What its handler returned, if its worker keeps results; otherwise None. A worker of the original may report
            a completion shortly before it stores the result.

        Raises:
            JobFailedError: The job failed for good.
            StateError: The queue has dropped events after `after`, and the job's end may be among them.
            TimeoutError: The timeout expired. The job continues.
        """
        check_id(job_id)
        end_ms = None if timeout is None else now_ms() + duration_ms(timeout, "timeout")
        reason, wait_s = "", _BLOCK_S
        async with AsyncChasquiEvents(self.name, url=self._url, after=after) as events:
            await events.check_cursor()
            while end_ms is None or (wait_s := min(_BLOCK_S, (end_ms - now_ms()) / 1000)) > 0:
                for event in await events.read(wait_s):
                    if event.type == "dlq" and not event.job_id and (letter := await self._find_letter(job_id, after)):
                        raise JobFailedError(self.name, job_id, letter.detail or letter.reason, letter.reason)
                    if event.job_id != job_id:
                        continue
                    reason = event.fields.get("reason", reason) if event.type == "failed" else reason
                    if event.type == "completed":
                        return await self.find_result(job_id)
                    if event.type == "dlq":
                        kind = event.fields.get("reason", "")
                        raise JobFailedError(self.name, job_id, reason or kind, kind)
        raise TimeoutError(f"Job {job_id!r} of queue {self.name!r} did not end in time; it continues.")

    async def _find_letter(self, job_id: str, after: str) -> ChasquiDeadLetter | None:
        """Find the dead letter of a job that no handler ran: the event of such a one names no job."""
        place = str(max(0, int(after.partition("-")[0]) - 1))
        while page := await self.dead_letters(_PAGE, after=place):
            for letter in page:
                if letter.job_id == job_id:
                    return letter
            place = page[-1].id
        return None

    def _builder(self) -> JobBuilder:
        at_ms = now_ms()
        return JobBuilder(self.keys, at_ms, ulids(at_ms, secrets.randbits), self._max_length)

    def _prepare(self, new: NewChasquiJob) -> PreparedJob:
        builder = self._builder()
        return builder.build(builder.check(new))

    async def cancel(self, job_id: str) -> bool:
        """Remove a delayed job.

        Returns:
            False if it is not delayed, or if a client of the original added it without an id.
        """
        keys, checked = self.keys, check_id(job_id)
        call = functions.cancel(
            delayed_key=keys.delayed, index_key=keys.index(checked), marker_key=keys.marker(checked)
        )
        return bool(await self._execute(call))

    async def find_result(self, job_id: str) -> Any:
        """Return what a job's handler returned; None if it has not completed, returned None, or the result expired."""
        return (await self.find_results([job_id]))[0]

    async def find_results(self, job_ids: Sequence[str]) -> list[Any]:
        """Return the results of many jobs, in the same order; None for a missing one."""
        calls = [Call("GET", (self.keys.result(job_id),)) for job_id in check_ids(job_ids)]
        replies = await self._pipeline(calls, repeatable=True)
        return [None if packed is None else unpack(packed, "The job's result") for packed in replies]

    async def list_jobs(self, limit: int = 20) -> list[ChasquiJob]:
        """List the jobs that are ready or running, oldest first, without unreadable ones."""
        call = Call("XRANGE", (self.keys.stream,), ("-", "+", "COUNT", check_count(limit, "limit")))
        return read_jobs(self.name, await self._execute(call, repeatable=True))

    async def list_delayed(self, limit: int = 20) -> list[tuple[datetime, ChasquiJob]]:
        """List the delayed jobs, the next first, each with its time."""
        args = (0, check_count(limit, "limit") - 1, "WITHSCORES")
        reply = await self._execute(Call("ZRANGE", (self.keys.delayed,), args), repeatable=True)
        return read_delayed(self.name, reply)

    async def counts(self) -> ChasquiCounts:
        """Count the queue's jobs."""
        return read_counts(await self._pipeline(count_calls(self.keys), repeatable=True))

    async def pause(self) -> None:
        """Stop workers from starting jobs. Those of chasquimq 1.3.0 ignore it; later ones don't."""
        await self._execute(Call("SET", (self.keys.paused,), ("1",)), repeatable=True)

    async def resume(self) -> None:
        """Let workers start jobs again."""
        await self._execute(Call("DEL", (self.keys.paused,)), repeatable=True)
