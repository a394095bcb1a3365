"""Find, check and stop the jobs of a run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import dagster as dg

from orchestration_queue.client import Queue
from orchestration_queue.dagster._compat import WorkerStatus, resumptions, step_stopped
from orchestration_queue.dagster.job_health import Condition, has_stopped, judge
from orchestration_queue.dagster.steps.envelope import run_job_id, run_prefix
from orchestration_queue.errors import JobNotFoundError
from orchestration_queue.options import milliseconds
from orchestration_queue.protocol.call import Call, Operation, read_time
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.operations.control import Cancellation
from orchestration_queue.protocol.operations.worker_registry import workers
from orchestration_queue.protocol.record import JobRecord, when
from orchestration_queue.server import Connection
from orchestration_queue.states import JobState

__all__ = ["JOB", "QUEUE", "JobAddress", "RunJobs", "find_run_job", "find_step_jobs", "report_ends"]

JOB, QUEUE = "job", "queue"
"""The names of a job's id and queue in the metadata of events."""
_STATUSES = {
    Condition.UNKNOWN: WorkerStatus.NOT_FOUND,
    Condition.COMPLETED: WorkerStatus.SUCCESS,
    Condition.FAILED: WorkerStatus.FAILED,
    Condition.SILENT: WorkerStatus.FAILED,
    Condition.OPEN: WorkerStatus.RUNNING,
}
_POLL_S = 0.1
_LAUNCHES = dg.DagsterEventType.STEP_WORKER_STARTING
_STARTS = (dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_RESTARTED)
_ENDS = (dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_UP_FOR_RETRY)
_ANY_RUN = run_prefix("").removesuffix(".")
"""Prefix of the ids of all of Dagster's jobs."""
_UNFINISHED = (JobState.WAITING, JobState.ACTIVE, JobState.DELAYED)
_LAST_LINES = 20


_SERVER_MS = Operation(Call("TIME"), read_time)
"""The server's clock, by which workers renew their leases; the clock of this machine may be wrong."""


@dataclass(frozen=True, slots=True)
class JobAddress:
    """The queue and id of a job.

    Attributes:
        queue: The queue's name.
        job_id: The job's id.
    """

    queue: str
    job_id: str

    def __str__(self) -> str:
        return f"job {self.job_id!r} on queue {self.queue!r}"


def find_run_job(instance: dg.DagsterInstance, run_id: str, queue: str) -> JobAddress:
    """Find the job that executes a run now.

    Args:
        instance: The run's instance. The run's log is read once.
        run_id: The run.
        queue: The job's queue if it is not in the log, because the launching process died before it was written.
    """
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    job_id = run_job_id(run_id, resumptions(entry.message for entry in entries))
    places = {place.job_id: place for entry in entries if (place := _read_address(entry, run_id))}
    return places.get(job_id, JobAddress(queue, job_id))


def find_step_jobs(instance: dg.DagsterInstance, run_id: str) -> list[JobAddress]:
    """Find the jobs of a run's steps that started and have not ended. Reads the run's log once."""
    open_steps: dict[str, JobAddress] = {}
    for entry in instance.all_logs(run_id, of_type={_LAUNCHES, *_ENDS}):
        if (key := entry.step_key) is None:
            continue
        open_steps.pop(key, None)
        if place := _read_address(entry, run_id):
            open_steps[key] = place
    return list(open_steps.values())


def report_ends(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Report the failure of each step of a run that has started and has no end: its process is gone.

    Call it when no job of the run is left, and before the end of the run is reported. Reads the run's log once. Steps
    that another executor launched are left out: they may run elsewhere.
    """
    started: dict[str, dg.DagsterEvent] = {}
    elsewhere: set[str] = set()
    for entry in instance.all_logs(run.run_id, of_type={_LAUNCHES, *_STARTS, *_ENDS}):
        event = entry.dagster_event
        if event is None or event.step_key is None:
            continue
        if event.event_type is _LAUNCHES:
            if _read_address(entry, run.run_id) is None:
                elsewhere.add(event.step_key)
            continue
        started.pop(event.step_key, None)
        if event.event_type in _STARTS:
            started[event.step_key] = event
    for key in started.keys() - elsewhere:
        instance.report_dagster_event(step_stopped(started[key]), run_id=run.run_id)


def _read_address(entry: dg.EventLogEntry, run_id: str) -> JobAddress | None:
    """Return the address of the run's job that this event names; None if it names none."""
    event = entry.dagster_event
    if event is None or event.event_type not in (dg.DagsterEventType.ENGINE_EVENT, _LAUNCHES):
        return None
    metadata = getattr(event.event_specific_data, "metadata", {})
    job_id, queue = (getattr(metadata.get(name), "value", None) for name in (JOB, QUEUE))
    if not isinstance(job_id, str) or not isinstance(queue, str) or not job_id.startswith(run_prefix(run_id)):
        return None  # another executor's
    return JobAddress(queue, job_id)


class RunJobs:
    """Jobs of runs on the queues of one server.

    Args:
        connection: The connection to the server.
        prefix: First part of every key.
    """

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix

    def queue(self, name: str) -> Queue:
        """Open a client of one queue.

        Raises:
            InvalidNameError: The wire cannot carry the name.
        """
        return Queue(name, connection=self._connection, prefix=self._prefix)

    def record(self, place: JobAddress) -> JobRecord | None:
        """Return the job, or None. One exchange."""
        return self._connection.look(job_records.job(self.queue(place.queue).keys, place.job_id))

    def records(self, places: Sequence[JobAddress]) -> list[JobRecord | None]:
        """Read states and options of jobs; None for those that do not exist. One exchange for each 1,000."""
        wanted = [(self.queue(place.queue).keys, place.job_id) for place in places]
        return list(self._connection.follow(job_records.jobs(wanted, ("state", "opts"))))

    def take_turn(self, queue: str, every: timedelta, instance: str) -> bool:
        """Return whether it is time to sweep a queue: once per period for an instance, on any machine. One exchange."""
        # Never unlocked: it expires when the next sweep may begin.
        lock = glidemq.try_lock(
            lock_key=self.queue(queue).keys.named(f"dagster:swept:{instance}"),
            token=secrets.token_hex(8),
            ttl_ms=max(1, milliseconds(every)),
        )
        return bool(self._connection.execute(lock) == 1)

    def unfinished(self, queue: str) -> list[JobAddress]:
        """List Dagster's jobs that wait or run on a queue."""
        keys = self.queue(queue).keys
        ids = [job_id for state in _UNFINISHED for job_id in self._connection.follow(job_records.job_ids(keys, state))]
        return [JobAddress(queue, job_id) for job_id in ids if job_id.startswith(_ANY_RUN)]

    def cancel(self, place: JobAddress) -> Cancellation | None:
        """Cancel a job, as :meth:`Queue.cancel` does; return None if it does not exist. One exchange."""
        try:
            return self.queue(place.queue).cancel(place.job_id)
        except JobNotFoundError:
            return None

    def stop(self, places: Iterable[JobAddress], timeout_s: float) -> bool:
        """Cancel jobs, and wait until no worker runs them.

        Args:
            places: The jobs. One exchange each, and two for each check.
            timeout_s: How long to wait.

        Returns:
            Whether all have ended.
        """
        running = [place for place in places if self.cancel(place) is Cancellation.FLAGGED]
        deadline = time.monotonic() + timeout_s
        while running := [place for place in running if not self._has_ended(place)]:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _has_ended(self, place: JobAddress) -> bool:
        """Return whether no worker runs a canceled job; the job fails before its worker has stopped it."""
        if has_stopped(self.queue(place.queue), place.job_id):
            return True
        record = self.record(place)
        return record is None or (not record.is_finished and self.health(place, record)[0] is WorkerStatus.FAILED)

    def health(self, place: JobAddress, record: JobRecord | None) -> tuple[WorkerStatus, str]:
        """Return whether a worker runs, or will run, a job, and a clause for logs. At most one exchange."""
        lease_s = int(record.options.get("lockDuration") or 0) / 1000 if record is not None else 0
        is_active = record is not None and record.state is JobState.ACTIVE
        silent_s = self._measure_silence(record) if record is not None and is_active and lease_s else 0
        found = judge(str(place), record, silent_s, lease_s)
        return _STATUSES[found.condition], found.message

    def _measure_silence(self, record: JobRecord) -> float:
        """Return the seconds since a worker renewed the job's lease, by the server's clock."""
        return (self._connection.look(_SERVER_MS) - int(record.fields.get("lastActive") or 0)) / 1000

    def describe(self, place: JobAddress) -> str:
        """Describe a job in lines of text: its health, its times, its last log lines, and missing workers."""
        record = self.record(place)
        lines = [f"Run worker: {self.health(place, record)[1]}."]
        if record is None:
            return lines[0]
        queue = self.queue(place.queue)
        if not (record.is_finished or record.state is JobState.ACTIVE or self._connection.follow(workers(queue.keys))):
            command = f"oq dagster worker -m your.definitions -q {place.queue}"
            lines.append(f"Queue {place.queue!r} has no worker; start one with `{command}`.")
        lines += [f"{name} at {at:%Y-%m-%d %H:%M:%S}" for name, at in _times(record) if at is not None]
        return "\n".join([*lines, *queue.last_logs(place.job_id, _LAST_LINES)])


def _times(record: JobRecord) -> Sequence[tuple[str, datetime | None]]:
    renewed_at = when(record.fields.get("lastActive"))
    return ("added", record.added_at), ("taken", record.started_at), ("last heartbeat", renewed_at)
