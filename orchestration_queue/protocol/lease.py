"""The lease of a started job, and the outcomes that a worker can report with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestration_queue.options import Retention
from orchestration_queue.options.wire import lease_from_wire
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import FailureKind

__all__ = [
    "KEEP",
    "ChildrenWait",
    "Completion",
    "Delivery",
    "Failure",
    "GroupHold",
    "Lease",
    "Postponement",
    "Settlement",
    "Suspension",
]

KEEP = Retention()
"""Keep finished jobs forever: the wire's default."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job delivered to this worker that has not started, and its entry in the stream."""

    job_id: str
    entry_id: str


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """This worker's lease of a started job. Each start of a job is another lease.

    Attributes:
        record: The job when it started.
        entry_id: Its entry in the stream; '' if it came from a list.
    """

    record: JobRecord
    entry_id: str

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.record.id

    @property
    def lock_ms(self) -> float | None:
        """How long it lasts by the job's own options; None if they set no lease, or one that the wire ignores."""
        return lease_from_wire(self.record.options.get("lockDuration"))

    @property
    def scheduler(self) -> str | None:
        """The repeat-after-complete schedule that waits for its end, if any."""
        return self.record.fields.get("schedulerName")

    @property
    def taken_ms(self) -> int:
        """When it started, by the server. With :attr:`stalled_count` this identifies the lease."""
        return int(self.record.fields["processedOn"])

    @property
    def stalled_count(self) -> int:
        """How often it had been taken over when it started. A worker that takes it over has a higher count."""
        return self.record.stalled_count


@dataclass(frozen=True, slots=True)
class Completion:
    """A completed job, and its encoded result."""

    lease: Lease
    result: str
    retention: Retention = KEEP


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed. It is retried while fewer than ``max_attempts`` have failed."""

    lease: Lease
    reason: str
    max_attempts: int = 0
    backoff_ms: int = 0
    retention: Retention = KEEP
    kind: str = FailureKind.ERROR
    traceback: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Postponement:
    """The job runs again later, without counting an attempt; ``data``, encoded, replaces its payload unless empty."""

    lease: Lease
    until_ms: int
    data: str = ""


@dataclass(frozen=True, slots=True)
class ChildrenWait:
    """The job runs again when the jobs it waits for have completed."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Suspension:
    """The job runs again when it is signaled, and fails after ``timeout_ms`` without a signal; 0 waits forever.

    With ``resumes`` it doesn't fail then, but runs again, too.
    """

    lease: Lease
    reason: str = ""
    timeout_ms: int = 0
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class GroupHold:
    """The job's whole ordering group pauses for ``duration_ms``; the job waits with it, or fails.

    Attributes:
        lease: The job.
        duration_ms: How long.
        job: Where the job goes: to the ``front`` or ``back`` of its group, or ``fail``.
        is_extending: Keep a later end that is already set.
    """

    lease: Lease
    duration_ms: int
    job: Literal["front", "back", "fail"] = "front"
    is_extending: bool = True


Settlement = Completion | Failure | Postponement | ChildrenWait | Suspension | GroupHold
