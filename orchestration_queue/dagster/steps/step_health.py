"""Watch the jobs of a run's steps: wait for their events, and judge steps that report nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta

from orchestration_queue._logging import get_logger
from orchestration_queue.client import EventReader
from orchestration_queue.dagster.job_health import Cause, Condition, judge
from orchestration_queue.dagster.steps.work_item import run_prefix
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_records, worker_registry
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from orchestration_queue.states import JobState

__all__ = ["StepHealth", "StepVerdict"]

log = get_logger("orchestration_queue.dagster")

_WATCHED_EVENTS = frozenset({"completed", "failed", "revoked", "removed", "stalled"})
_FIELDS = ("state", "failedReason", "lastActive")
_FRESH_S = 0.2
"""How long a reading of all jobs is used, so that it serves one health check of all steps."""
_GRACE_S = 1.0
"""Added to allow for the clocks and storages of other machines."""
_CLEANUP_S = 20.0
"""How long a step whose job was revoked may take to report its end; its job fails before."""
_COUNT_WORKERS_EVERY_S = 5.0
_UNSERVED_S = 5.0
"""How long a step waits before the workers of its queue are read."""
_WAITING = (JobState.WAITING, JobState.DELAYED)
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """Why a step will not end on its own.

    Attributes:
        reason: A clause for logs and events.
        cause: Whether its worker was lost, its process crashed, or it failed.
    """

    reason: str
    cause: Cause


@dataclass(slots=True)
class _Watched:
    """A step's job.

    Attributes:
        keys: Its queue.
        code_version: The version of the code that its worker must have; '' for any.
        since: When it was added or found.
        sign: The time of its last heartbeat, on the server's clock.
        sign_at: When that heartbeat was first read, on this process's clock.
        suspicion: An unconfirmed verdict, and its time.
    """

    keys: QueueKeys
    code_version: str = ""
    since: float = field(default_factory=time.monotonic)
    sign: str = ""
    sign_at: float = field(default_factory=time.monotonic)
    suspicion: tuple[StepVerdict, float] | None = None

    def measure_silence(self, record: JobRecord | None) -> float:
        """Return the time since its worker renewed its lease, measured in this process."""
        sign = "" if record is None else record.fields.get("lastActive", "")
        if sign != self.sign:
            self.sign, self.sign_at = sign, time.monotonic()
        return time.monotonic() - self.sign_at


class StepHealth:
    """Watches the jobs of one run's steps.

    Args:
        connection: The connection to the server.
        run_id: The run.
        lease: How long a job may go without a heartbeat.
        unclaimed: How long a job may wait on a queue without a worker; None for no limit.
    """

    def __init__(self, connection: Connection, run_id: str, lease: timedelta, unclaimed: timedelta | None) -> None:
        self._connection = connection
        self._prefix = run_prefix(run_id)
        self._lease_s = lease.total_seconds()
        self._unclaimed_s = None if unclaimed is None else unclaimed.total_seconds()
        self._jobs: dict[str, _Watched] = {}
        self._records: dict[str, JobRecord | None] = {}
        self._read_at = float("-inf")
        self._versions: dict[QueueKeys, tuple[float, list[str]]] = {}
        self._reader: EventReader | None = None
        self._warned: set[tuple[QueueKeys, str]] = set()
        self._is_cut_off = False
        self.must_check = False

    @property
    def has_suspects(self) -> bool:
        """Whether a step has an unconfirmed verdict, or an event that requires a check, so that it is checked soon."""
        return self.must_check or any(job.suspicion for job in self._jobs.values())

    def add(self, keys: QueueKeys, job_id: str, code_version: str = "") -> None:
        """Watch a job."""
        self._jobs[job_id] = _Watched(keys, code_version)

    def listen_to(self, keys: QueueKeys) -> None:
        """Read the events of a queue from now on."""
        if self._reader is None:
            self._reader = EventReader(self._connection, {})
        if keys not in self._reader.cursors:
            self._reader.cursors[keys] = self._connection.look(event_log.last_event_id(keys))

    def drop(self, job_id: str) -> None:
        """Stop watching a job: Dagster's log has the end of its step."""
        self._jobs.pop(job_id, None)

    def wait(self, seconds: float) -> bool:
        """Wait for events of this run's steps.

        Returns:
            Whether there were any; False after a pause if the server is unreachable.
        """
        if self._reader is None:
            time.sleep(seconds)
            return False
        try:
            events = self._reader.read(seconds)
        except OrchestrationQueueError as error:
            if not self._is_cut_off:
                log.warning("The queue's events cannot be read; polling Dagster's log instead: %s", error)
            self._is_cut_off = True
            time.sleep(_PAUSE_S)
            return False
        self._is_cut_off = False
        own = [
            event
            for _, event in events
            if event.type in _WATCHED_EVENTS and (event.job_id or "").startswith(self._prefix)
        ]
        self.must_check = self.must_check or any(event.type != "completed" for event in own)
        return bool(own)

    def verdict(
        self, keys: QueueKeys, job_id: str, code_version: str = "", *, has_started: bool = True
    ) -> StepVerdict | None:
        """Return why a step will not end on its own; None if it will.

        A step whose worker was lost before it started, says Dagster's log, waits for another worker.

        A verdict must be confirmed by a second reading: the events of the step's end may be in Dagster's log, but not
        read yet.

        Raises:
            TransportError: The server is unreachable.
        """
        self.must_check = False
        job = self._jobs.setdefault(job_id, _Watched(keys, code_version))
        if time.monotonic() - self._read_at > _FRESH_S:
            self._read_jobs()
        found = self._judge(job, job_id, self._records.get(job_id), has_started=has_started)
        if found is None:
            job.suspicion = None
            return None
        verdict, delay_s = found
        now = time.monotonic()
        if job.suspicion is None:
            job.suspicion = (verdict, now)
            return None
        return verdict if self._read_at > job.suspicion[1] and now >= job.suspicion[1] + delay_s else None

    def explain_wait(self, job_id: str) -> str:
        """Return why no worker can run a step that has waited for some seconds; '' if one can, or if it was logged."""
        job, record = self._jobs.get(job_id), self._records.get(job_id)
        waits = record is not None and "state" in record.fields and record.state in _WAITING
        if job is None or not waits or time.monotonic() - job.since < _UNSERVED_S:
            return ""
        if (job.keys, job.code_version) in self._warned or not (lack := self._lack(job)):
            return ""
        self._warned.add((job.keys, job.code_version))
        return lack

    def close(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()

    def _read_jobs(self) -> None:
        """Read all watched jobs. One exchange per 1,000."""
        wanted = [(job.keys, job_id) for job_id, job in self._jobs.items()]
        records = self._connection.follow(job_records.jobs(wanted, _FIELDS))
        self._records = {job_id: record for (_, job_id), record in zip(wanted, records, strict=True)}
        self._read_at = time.monotonic()

    def _judge(
        self, job: _Watched, job_id: str, record: JobRecord | None, *, has_started: bool
    ) -> tuple[StepVerdict, float] | None:
        """Return a verdict, and how long to wait before it is confirmed; None if the step will end on its own."""
        where = f"its job {job_id!r} on queue {job.keys.queue!r}"
        health = judge(where, record, job.measure_silence(record), self._lease_s)
        match health.condition:
            case Condition.COMPLETED:
                message = f"{health.message}, but Dagster's log has no end of the step"
                return StepVerdict(message, Cause.LOST), _GRACE_S
            case Condition.OPEN if record is not None and record.state is not JobState.ACTIVE:
                return self._judge_waiting(job, where)
            case Condition.OPEN:
                return None
            case Condition.SILENT if not has_started:
                return self._judge_waiting(job, where)
        delay_s = _CLEANUP_S if record is not None and record.failed_reason == "revoked" else 0
        return StepVerdict(health.message, health.cause), delay_s

    def _judge_waiting(self, job: _Watched, where: str) -> tuple[StepVerdict, float] | None:
        waited_s = time.monotonic() - job.since
        if self._unclaimed_s is None or waited_s < self._unclaimed_s or not (lack := self._lack(job)):
            return None
        return StepVerdict(f"{where} has waited for {waited_s:.0f} s, because {lack}", Cause.FAILED), 0

    def _lack(self, job: _Watched) -> str:
        """Return why the queue's workers cannot run a job, and what to do; '' if one of them can."""
        versions = self._worker_versions(job.keys)
        name, wanted = job.keys.queue, job.code_version
        if wanted in versions or (versions and not wanted):
            return ""
        command = (
            f"`oq dagster worker -m your.definitions --queue {name}{f' --code-version {wanted}' if wanted else ''}`"
        )
        if not versions:
            return f"queue {name!r} has no worker; start one with {command}"
        found = ", ".join(sorted({repr(version) if version else "none" for version in versions}))
        return (
            f"it requires code version {wanted!r}, but workers of queue {name!r} have {found}; start one with {command}"
        )

    def _worker_versions(self, keys: QueueKeys) -> list[str]:
        """Return the code version of each of a queue's workers, cached for some seconds: reading it scans all keys."""
        at, versions = self._versions.get(keys, (float("-inf"), []))
        if time.monotonic() - at > _COUNT_WORKERS_EVERY_S:
            versions = [one.code_version or "" for one in self._connection.follow(worker_registry.workers(keys))]
            self._versions[keys] = (time.monotonic(), versions)
        return versions
