"""Watch the jobs of an executor in a thread: the scheduler's loop only takes what it has found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from queue import SimpleQueue
from typing import Final

from orchestration_queue._logging import get_logger
from orchestration_queue.airflow.envelope import ALREADY_RUNNING, CONTINUES
from orchestration_queue.client import EventReader
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_records
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from orchestration_queue.states import JobState

__all__ = ["JobReport", "JobWatcher", "Outcome"]

log = get_logger("orchestration_queue.airflow")

_FIELDS: Final = ("state", "failedReason", "returnvalue", "lastActive")
_ENDS: Final = frozenset({"completed", "failed", "revoked", "removed", "expired", "gap"})
_READ_S: Final = 0.5
"""How long one read waits for events; a queue that is new to the reader waits as long."""
_CHECK_EVERY_S: Final = 10.0
"""How often to read all jobs at least, in case an event was lost."""
_PAUSE_S: Final = 1.0


class Outcome(Enum):
    """The outcome of a job, or that it has started."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    IGNORED = "ignored"
    """The task runs, or continues, as another job."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """What the watcher has found.

    Attributes:
        job_id: The job.
        outcome: Its outcome.
        reason: Why it failed.
    """

    job_id: str
    outcome: Outcome
    reason: str = ""


@dataclass(slots=True)
class _TaskJob:
    keys: QueueKeys
    is_added: bool = True
    sign: str = ""
    sign_at: float = field(default_factory=time.monotonic)


class JobWatcher:
    """Reads the events of queues in a thread of its own.

    Args:
        connection: The connection to the server.
        silence_s: How long the worker of an active job may not renew its lease before the job counts as failed. Other
            workers take it over long before, if there are any.
        give_up: Cancels such a job, so that no worker runs it later.
        has_begun: Whether Airflow's task of a job ran before a time at which the job was found stalled.
    """

    def __init__(
        self,
        connection: Connection,
        silence_s: float,
        give_up: Callable[[QueueKeys, str], None],
        has_begun: Callable[[str, datetime], bool] = lambda *_: False,
    ) -> None:
        self._connection = connection
        self._has_begun = has_begun
        self._silence_s = silence_s
        self._check_every_s = min(_CHECK_EVERY_S, silence_s)
        self._give_up = give_up
        self._jobs: dict[str, _TaskJob] = {}
        self._lock = threading.Lock()
        self._reports: SimpleQueue[JobReport] = SimpleQueue()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="oq-airflow-watcher", daemon=True)
        self._is_cut_off = False
        self._unread: set[str] = set()
        self._stalled: dict[str, datetime] = {}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def add(self, keys: QueueKeys, job_ids: Iterable[str]) -> None:
        """Watch jobs that exist."""
        with self._lock:
            self._jobs |= {job_id: _TaskJob(keys) for job_id in job_ids}

    def expect(self, keys: QueueKeys, job_ids: Iterable[str]) -> None:
        """Watch jobs that are about to be added. They are not missing before :meth:`confirm`."""
        with self._lock:
            self._jobs |= {job_id: _TaskJob(keys, is_added=False) for job_id in job_ids}

    def confirm(self, job_ids: Iterable[str]) -> None:
        """Take note that expected jobs were added."""
        with self._lock:
            for job_id in job_ids:
                if (job := self._jobs.get(job_id)) is not None:  # else it has ended, and is reported
                    job.is_added = True

    def drop(self, job_id: str) -> QueueKeys | None:
        """Stop watching a job; return its queue, None if it was not watched."""
        with self._lock:
            job = self._jobs.pop(job_id, None)
        return job.keys if job else None

    def take(self) -> list[JobReport]:
        """Return what was found since the last call. It never waits."""
        return [self._reports.get_nowait() for _ in range(self._reports.qsize())]

    def report(self, job_id: str, record: JobRecord | None) -> bool:
        """Report a job that has ended and stop watching it; return whether it has."""
        if record is None or "state" not in record.fields:
            found = JobReport(
                job_id, Outcome.FAILED, f"job {job_id!r} does not exist: it was removed, or the server lost it"
            )
        elif record.state is JobState.COMPLETED:
            result = record.fields.get("returnvalue", "")
            # Airflow fails a rescheduled task that is due again before its executor reports a success.
            is_elsewhere = ALREADY_RUNNING in result or CONTINUES in result
            found = JobReport(job_id, Outcome.IGNORED if is_elsewhere else Outcome.COMPLETED)
        elif record.state is JobState.FAILED:
            found = JobReport(
                job_id, Outcome.FAILED, f"job {job_id!r} failed: {record.failed_reason or 'without a reason'}"
            )
        else:
            return False
        self.drop(job_id)
        self._reports.put(found)
        return True

    def _watch(self) -> None:
        reader = EventReader(self._connection, {})
        check_at = time.monotonic() + self._check_every_s
        while not self._is_over.is_set():
            try:
                self._follow(reader)
                if time.monotonic() >= check_at:
                    check_at = time.monotonic() + self._check_every_s
                    self._check_all()
                self._is_cut_off = False
            except OrchestrationQueueError as error:
                if not self._is_cut_off:
                    log.warning("The jobs of Airflow's tasks can't be read; retrying: %s", error)
                self._is_cut_off = True
                self._is_over.wait(_PAUSE_S)
            except Exception:  # without this thread, no task would ever end for the scheduler
                if not self._is_cut_off:
                    log.exception("The jobs of Airflow's tasks can't be read; retrying.")
                self._is_cut_off = True
                self._is_over.wait(_PAUSE_S)
        reader.close()

    def _follow(self, reader: EventReader) -> None:
        """Read events, and the jobs that have ended."""
        fresh = False
        for keys in {job.keys for job in self._snapshot().values()} - reader.cursors.keys():
            reader.cursors[keys] = self._connection.look(event_log.last_event_id(keys))
            fresh = True
        if fresh:
            self._check_all()  # what ended before its queue was followed
        if not reader.cursors:
            self._is_over.wait(_READ_S)
            return
        # The reader won't return these events again: what they lead to is kept until it is done.
        for keys, event in reader.read(_READ_S):
            if event.is_gap:
                self._unread |= {job_id for job_id, job in self._added().items() if job.keys == keys}
            elif event.type in _ENDS:
                self._unread.add(event.job_id)
            elif event.type == "active" and event.job_id in self._jobs:
                self._reports.put(JobReport(event.job_id, Outcome.RUNNING))
            elif event.type == "stalled" and event.job_id in self._jobs:
                self._stalled[event.job_id] = event.at
        self._read({job_id: job for job_id, job in self._snapshot().items() if job_id in self._unread})
        self._unread.clear()
        self._check_stalled()

    def _snapshot(self) -> dict[str, _TaskJob]:
        with self._lock:
            return dict(self._jobs)

    def _added(self) -> dict[str, _TaskJob]:
        return {job_id: job for job_id, job in self._snapshot().items() if job.is_added}

    def _read(self, jobs: dict[str, _TaskJob]) -> dict[str, JobRecord | None]:
        """Read jobs and report those that have ended; return the others. One exchange per 1,000."""
        wanted = [(job.keys, job_id) for job_id, job in jobs.items()]
        records = self._connection.follow(job_records.jobs(wanted, _FIELDS)) if wanted else []
        found = dict(zip(jobs, records, strict=True))
        return {job_id: record for job_id, record in found.items() if not self.report(job_id, record)}

    def _check_all(self) -> None:
        """Read all jobs, and report those whose worker is gone while no other one takes them over."""
        jobs = self._added()
        for job_id, record in self._read(jobs).items():
            job, sign = jobs[job_id], record.fields.get("lastActive", "") if record else ""
            if record is None or record.state is not JobState.ACTIVE or sign != job.sign:
                job.sign, job.sign_at = sign, time.monotonic()
            elif time.monotonic() - job.sign_at > self._silence_s:
                self._lose(job, job_id, f"has not renewed its lease for {self._silence_s:.0f} s")

    def _check_stalled(self) -> None:
        """Report the jobs that stalled after their tasks had begun: they may wait long for a worker to find that out.

        Those that Airflow's database was not asked about, because it failed, are checked again.
        """
        for job_id, at in list(self._stalled.items()):
            job = self._snapshot().get(job_id)
            if job is not None and self._has_begun(job_id, at):
                self._lose(job, job_id, "did not renew its lease")
            del self._stalled[job_id]

    def _lose(self, job: _TaskJob, job_id: str, what: str) -> None:
        self._give_up(job.keys, job_id)
        self._reports.put(JobReport(job_id, Outcome.FAILED, f"the worker of job {job_id!r} {what}"))
        self.drop(job_id)
