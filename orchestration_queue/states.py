"""The states of a job, and all transitions between them, as data.

Source: the wire's state table. The reference of the documentation draws :data:`TRANSITIONS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["TERMINAL", "TRANSITIONS", "FailureKind", "JobState", "Transition"]


class FailureKind(StrEnum):
    """The predefined kinds of failure.

    If a handler raises, the kind is the exception's qualified class, or that of ``Failed(kind=...)``.
    """

    ERROR = "error"
    """The handler raised, on a worker that stores no kind."""
    TIMEOUT = "timeout"
    """The handler took longer than the job's timeout."""
    CANCELLED = "cancelled"
    """The job was cancelled."""
    STALLED = "stalled"
    """The job stalled too often: its workers were lost."""
    EXPIRED = "expired"
    """The job's time to live expired before it started."""
    MALFORMED = "malformed"
    """The job's record is damaged, so no worker can run it."""
    RATE_LIMITED = "rate-limited"
    """A service that the handler calls refused it; the job is retried."""


class JobState(StrEnum):
    """The state of a job. The values are the wire's words."""

    WAITING = "waiting"
    """Ready: in the stream, or in the priority or LIFO list."""
    ACTIVE = "active"
    """With a worker."""
    DELAYED = "delayed"
    """Due later: a delay, or the pause before a retry."""
    PRIORITIZED = "prioritized"
    """Ready, with a priority, and not yet promoted to the priority list."""
    WAITING_CHILDREN = "waiting-children"
    """Waits for the jobs it depends on."""
    GROUP_WAITING = "group-waiting"
    """Parked until its ordering group has room."""
    SUSPENDED = "suspended"
    """Suspended by its handler until a signal arrives."""
    COMPLETED = "completed"
    FAILED = "failed"


TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED})
"""States that a job leaves only when a user retries it."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition of the state diagram."""

    source: JobState
    target: JobState
    trigger: str


def _arrows(sources: str, target: str, triggers: str) -> tuple[Transition, ...]:
    return tuple(
        Transition(JobState(source), JobState(target), trigger)
        for source in sources.split()
        for trigger in triggers.split()
    )


TRANSITIONS: tuple[Transition, ...] = (
    *_arrows("delayed prioritized", "waiting", "promote"),
    *_arrows("delayed", "waiting", "promoteJob changeDelay"),
    *_arrows("delayed", "prioritized", "changeDelay"),
    *_arrows("delayed prioritized waiting", "failed", "expire"),
    *_arrows("waiting prioritized", "delayed", "changeDelay"),
    *_arrows("waiting", "prioritized", "changePriority"),
    *_arrows("prioritized", "waiting", "changePriority"),
    *_arrows("waiting", "active", "moveToActive completeAndFetchNext"),
    *_arrows("waiting", "group-waiting", "moveToActive completeAndFetchNext"),
    *_arrows("waiting", "failed", "tokenBucketReject"),
    *_arrows("group-waiting", "waiting", "release promoteRateLimited"),
    *_arrows("waiting group-waiting delayed prioritized", "failed", "revoke"),
    *_arrows("active", "completed", "complete completeAndFetchNext"),
    *_arrows("active", "delayed", "retry moveActiveToDelayed"),
    *_arrows("active", "failed", "fail stall expire rateLimitGroup"),
    *_arrows("active", "waiting", "deferActive stall moveToWaitingChildren"),
    *_arrows("active", "waiting-children", "moveToWaitingChildren"),
    *_arrows("active", "group-waiting", "rateLimitGroup"),
    *_arrows("active", "suspended", "suspend"),
    *_arrows("suspended", "waiting", "signal"),
    *_arrows("suspended", "failed", "sweepSuspended"),
    *_arrows("waiting-children", "waiting", "complete completeChild registerParent"),
    *_arrows("failed", "delayed", "retryJobs"),
)
