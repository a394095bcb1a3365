"""Run a queue's jobs in a test: real workers, real serialization, real retries, until nothing is left to do."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from orchestration_queue.client import AsyncQueue, Queue
from orchestration_queue.client.values import Deadline
from orchestration_queue.errors import JobFailedError, PayloadError, UsageError
from orchestration_queue.options import Duration, WorkerOptions
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Conversation, Reply, integer
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records, queue_state, schedule_entries, worker_registry
from orchestration_queue.protocol.record import JobRecord, when
from orchestration_queue.schedules import SchedulerEntry, evaluate
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState
from orchestration_queue.testing.time_machine import TimeMachine
from orchestration_queue.worker import AsyncActiveJob, CallNext, Handler, Router, Worker, WorkerEvent, WorkerEventType

__all__ = ["drain", "drain_async"]

_PROMOTION_INTERVAL = timedelta(milliseconds=50)
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.01
_PATIENCE = 20
"""Checks a quiet queue while a schedule may be about to learn that its job has ended."""


def drain(
    queue: Queue | AsyncQueue,
    handler: Handler | Router,
    *,
    timeout: Duration | None = 10,
    including_delayed: bool = False,
    until: datetime | Duration | None = None,
    raise_failures: bool = True,
    options: WorkerOptions | None = None,
) -> list[JobRecord]:
    """Run :func:`drain_async` from a test that is not a coroutine.

    Raises:
        UsageError: It was called on a running event loop, which it would block.
    """
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError("drain() would block the running event loop; in a coroutine, use `await drain_async(...)`.")
    # A loop factory leaves the thread's own event loop, if it has one, as it is.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(
            drain_async(
                queue,
                handler,
                timeout=timeout,
                including_delayed=including_delayed,
                until=until,
                raise_failures=raise_failures,
                options=options,
            )
        )


async def drain_async(
    queue: Queue | AsyncQueue,
    handler: Handler | Router,
    *,
    timeout: Duration | None = 10,  # noqa: ASYNC109  both faces have it
    including_delayed: bool = False,
    until: datetime | Duration | None = None,
    raise_failures: bool = True,
    options: WorkerOptions | None = None,
) -> list[JobRecord]:
    """Run a worker until no job of the queue is ready or active, and return the jobs that finished.

    The worker and the server are real: data are serialized, attempts counted, and plain handlers run in threads. A
    paused queue is left as it is.

    Args:
        queue: The queue, sync or async.
        handler: One handler for all jobs, or a router such as :class:`orchestration_queue.tasks.Tasks`.
        timeout: How long this may take in real time: a duration, or seconds; default 10 s; None sets no limit.
        including_delayed: Travel forward to delayed jobs and retries until none is left. Schedules that become due
            meanwhile run, but none is waited for.
        until: Travel to this time, or for this duration: everything due by then happens at its time, including
            schedules.
        raise_failures: Raise what the handler raised if a job has failed for good.
        options: The worker's options; default: one job at a time, in order.

    Returns:
        The jobs that completed or failed for good, in the order of their ends, as the server has them; those that are
        not kept, as they ended. The clock is set back, unless a :class:`TimeMachine` (or the fixture ``oq_clock``) is
        open.

    Raises:
        Exception: What the first failed job's handler raised; :class:`JobFailedError` if no handler ran, for example
            because the job expired.
        TimeoutError: The timeout expired; the message says what is left.
        UsageError: ``including_delayed`` and ``until`` are both given, ``until`` is in the past or has no time zone, or
            the timeout is negative.
    """
    with ExitStack() as stack:
        clock = TimeMachine() if TimeMachine.is_open() else stack.enter_context(TimeMachine())
        end = _end(clock, until, including_delayed=including_delayed)
        deadline = Deadline(timeout)
        async with await AsyncConnection.open(queue.url) as connection:
            session = _DrainSession(queue, connection, handler, options or WorkerOptions(), clock)
            finished = await session.drain(deadline.seconds, including_delayed=including_delayed, end=end)
    if raise_failures:
        session.raise_first_of([record for record in finished if record.state is JobState.FAILED])
    return finished


def _end(clock: TimeMachine, until: datetime | Duration | None, *, including_delayed: bool) -> datetime | None:
    if until is None:
        return None
    if including_delayed:
        raise UsageError("`including_delayed` and `until` exclude each other; pass one of them.")
    now = clock.now()
    end = clock.moment(until)
    if end < now:
        raise UsageError(f"`until` must not be in the past, got {end} at {now}; pass a later time.")
    return end


class _DrainSession:
    """One drain: a worker, what it does, and what is left."""

    def __init__(
        self,
        queue: Queue | AsyncQueue,
        connection: AsyncConnection,
        handler: Handler | Router,
        options: WorkerOptions,
        clock: TimeMachine,
    ) -> None:
        self._queue = AsyncQueue(queue.name, connection=connection, prefix=queue.keys.prefix)
        self._connection = connection
        self._clock = clock
        self._recorder = _Recorder()
        interval = min(options.promotion_interval, _PROMOTION_INTERVAL)
        self._options = options.model_copy(update={"promotion_interval": interval})
        self._worker = Worker(
            queue.name,
            handler,
            url=connection.url,
            options=self._options,
            prefix=queue.keys.prefix,
            middleware=[self._recorder],
        )
        self._worker.subscribe(self._recorder.hear)

    async def drain(self, seconds: float | None, *, including_delayed: bool, end: datetime | None) -> list[JobRecord]:
        """Run until there is nothing to do; return the jobs that finished."""
        failed_before = {job.id for job in await self._queue.jobs(JobState.FAILED)}
        working = asyncio.ensure_future(self._worker.run())
        quiet = asyncio.ensure_future(self._until_quiet(including_delayed=including_delayed, end=end))
        try:
            await asyncio.wait({working, quiet}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            if not quiet.done():
                raise TimeoutError(await self._what_is_left(seconds))
            quiet.result()
            self._worker.stop()
            await working
        finally:
            quiet.cancel()
            self._worker.kill()
            await asyncio.wait({working, quiet})
        return await self._read_finished(failed_before)

    async def _until_quiet(self, *, including_delayed: bool, end: datetime | None) -> None:
        pause_s, patience = _SHORTEST_PAUSE_S, _PATIENCE
        while True:
            seen = await _take_snapshot(self._queue, self._connection, self._options)
            if not seen.is_busy and seen.is_continued and end is not None and patience:
                patience -= 1
            elif not seen.is_busy:
                patience = _PATIENCE
                due_ms = seen.next_due_ms if end is not None else seen.next_job_due_ms
                if not self._travel_on(due_ms, including_delayed=including_delayed, end=end):
                    return
                pause_s = _SHORTEST_PAUSE_S
            elif seen.is_due:
                self._clock.travel(0)  # wakes the worker at once
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _travel_on(self, due_ms: int | None, *, including_delayed: bool, end: datetime | None) -> bool:
        """Travel to what is due next, if it is part of this drain; otherwise to its end."""
        due = when(due_ms)
        if due is not None and (including_delayed or (end is not None and due <= end)):
            self._clock.travel_to(due)
            return True
        if end is not None and self._clock.now() < end:
            self._clock.travel_to(end)
        return False

    async def _what_is_left(self, seconds: float | None) -> str:
        counts = await self._queue.counts()
        active = [f"{job.id} ({job.record.name})" for job in await self._queue.jobs(JobState.ACTIVE, limit=5)]
        running = f", among them {', '.join(active)}" if active else ""
        return (
            f"Queue {self._queue.name!r} still has work after {seconds:g} s: {counts.waiting} jobs ready, "
            f"{counts.active} active{running}; check why they do not end, or pass a longer `timeout`."
        )

    async def _read_finished(self, failed_before: set[str]) -> list[JobRecord]:
        """Return the jobs that ended here, and those that failed without running: expired or revoked."""
        failed = [job.record for job in await self._queue.jobs(JobState.FAILED)]
        unseen = {
            record.id: record for record in failed if record.id not in failed_before | self._recorder.ended.keys()
        }
        ended = await self._connection.follow(self._recorder.records(self._queue.keys))
        return sorted([*ended, *unseen.values()], key=lambda record: record.finished_at or self._clock.now())

    def raise_first_of(self, failed: list[JobRecord]) -> None:
        """Raise the error of the first of these jobs.

        Raises:
            Exception: What its handler raised.
        """
        if not failed:
            return
        first, *others = failed
        error = self._recorder.errors.get(first.id) or JobFailedError(
            self._queue.name, first.id, first.failed_reason or "it left no reason"
        )
        error.add_note(f"Job {first.id} ({first.name}) of queue {self._queue.name} failed for good from this.")
        for other in others:
            error.add_note(f"Job {other.id} ({other.name}) failed too: {other.failed_reason}")
        raise error


@dataclass(frozen=True, slots=True)
class _DrainSnapshot:
    """A queue at one moment.

    Attributes:
        is_busy: Whether there is something to do: jobs are ready, active or due, or a schedule is.
        is_due: Whether a sleeping worker has not noticed it yet.
        is_continued: Whether a schedule may be about to learn that its job has ended.
        next_job_due_ms: When the next delayed job, retry or limited group is due; None without one.
        next_due_ms: The same, with schedules.
    """

    is_busy: bool
    is_due: bool
    is_continued: bool
    next_job_due_ms: int | None
    next_due_ms: int | None


async def _take_snapshot(queue: AsyncQueue, connection: AsyncConnection, options: WorkerOptions) -> _DrainSnapshot:
    """Read everything in one transaction: between two reads, a job could move and be missed by both."""
    keys = queue.keys
    counting = queue_state.count(keys)
    due = glidemq.next_due(keys)
    entries, paused = schedule_entries.entries(keys), worker_registry.is_paused(keys)
    calls = [*next(counting), due, entries.call, paused.call]
    *counted, due_reply, entries_reply, paused_reply = await connection.pipeline(calls, atomic=True)
    ready_or_active = _end_of(counting, counted)
    if ready_or_active and options.honor_pause and paused.read(paused_reply):
        ready_or_active = (await queue.counts()).active
    stored = entries.read(entries_reply) if options.run_schedulers else {}
    at_ms = now_ms()
    plan, parsed = evaluate(stored, at_ms), map(SchedulerEntry.parse, stored.values())
    job_due_ms = integer(due_reply)
    planned = [due_ms for due_ms in (job_due_ms, plan.next_due_ms) if due_ms is not None and due_ms >= 0]
    is_due = 0 <= job_due_ms <= at_ms or not plan.is_empty
    return _DrainSnapshot(
        is_busy=ready_or_active > 0 or is_due,
        is_due=is_due,
        is_continued=any(entry is not None and entry.waits_for_completion for entry in parsed),
        next_job_due_ms=job_due_ms if job_due_ms >= 0 else None,
        next_due_ms=min(planned, default=None),
    )


def _end_of(steps: Conversation[int], replies: list[Reply]) -> int:
    """Return the result of a conversation of one exchange for its replies."""
    try:
        steps.send(replies)
    except StopIteration as end:
        return int(end.value)
    raise AssertionError("counting takes one exchange")


class _Recorder:
    """Records each job that a worker runs: a middleware, and a listener to its events.

    Attributes:
        errors: What the last attempt of a job raised, by job id.
        ended: Jobs that completed or failed for good, as they were when their last attempt began, in that order.
    """

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.ended: dict[str, JobRecord] = {}
        self._results: dict[str, Any] = {}

    async def __call__(self, job: AsyncActiveJob, call_next: CallNext) -> Any:
        """Run the job, and record its outcome."""
        self.errors.pop(job.id, None)
        try:
            self._results[job.id] = result = await call_next()
        except Exception as error:
            self.errors[job.id] = error
            raise
        return result

    def hear(self, event: WorkerEvent) -> None:
        """Record an end that the server knows of."""
        if event.job is None:
            return
        if event.type is WorkerEventType.COMPLETED:
            ending = {"state": JobState.COMPLETED, **self._read_return_value(event.job.id)}
        elif event.type is WorkerEventType.FAILED and not event.will_retry:
            ending = {"state": JobState.FAILED, "failedReason": event.reason or ""}
        else:
            return
        fields = {**event.job.fields, **ending, "finishedOn": str(now_ms())}
        self.ended.pop(event.job.id, None)  # of several endings the last counts, in its place
        self.ended[event.job.id] = replace(event.job, fields=fields)

    def _read_return_value(self, job_id: str) -> dict[str, str]:
        with suppress(PayloadError):
            return {"returnvalue": codec.encode(self._results.get(job_id), "The job's result")}
        return {}

    def records(self, keys: QueueKeys) -> Conversation[list[JobRecord]]:
        """Return the jobs that ended, as the server has them; those that are not kept, as they ended."""
        stored = yield from job_records.jobs([(keys, job_id) for job_id in self.ended])
        pairs = zip(stored, self.ended.values(), strict=True)
        return [held if held is not None and held.is_finished else seen for held, seen in pairs]
