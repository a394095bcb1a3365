"""A drain's view of a queue, and of the worker that runs its jobs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import PayloadError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Conversation, Reply, integer
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records, queue_state, schedule_entries, worker_registry
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.schedules import SchedulerEntry, evaluate
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob, CallNext, WorkerEvent, WorkerEventType

__all__ = ["Recorder", "Snapshot", "look"]


@dataclass(frozen=True, slots=True)
class Snapshot:
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


async def look(queue: AsyncQueue, connection: AsyncConnection, options: WorkerOptions) -> Snapshot:
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
    return Snapshot(
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


class Recorder:
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
            ending = {"state": JobState.COMPLETED, **self._returned(event.job.id)}
        elif event.type is WorkerEventType.FAILED and not event.will_retry:
            ending = {"state": JobState.FAILED, "failedReason": event.reason or ""}
        else:
            return
        fields = {**event.job.fields, **ending, "finishedOn": str(now_ms())}
        self.ended.pop(event.job.id, None)  # of several endings the last counts, in its place
        self.ended[event.job.id] = replace(event.job, fields=fields)

    def _returned(self, job_id: str) -> dict[str, str]:
        with suppress(PayloadError):
            return {"returnvalue": codec.encode(self._results.get(job_id), "The job's result")}
        return {}

    def records(self, keys: QueueKeys) -> Conversation[list[JobRecord]]:
        """Return the jobs that ended, as the server has them; those that are not kept, as they ended."""
        stored = yield from job_records.jobs([(keys, job_id) for job_id in self.ended])
        pairs = zip(stored, self.ended.values(), strict=True)
        return [held if held is not None and held.is_finished else seen for held, seen in pairs]
