"""Plain values that the async and the sync client take and return; and the flag of a wait, one for each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orchestration_queue.errors import JobFailedError
from orchestration_queue.options import Duration
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = [
    "ENDINGS",
    "LOOK_AGAIN_S",
    "AsyncFlag",
    "Deadline",
    "Flag",
    "FlowNode",
    "describe_age",
    "encode_data",
    "event_outcome",
    "outcome",
]

ENDINGS = frozenset({"completed", "failed", "expired", "revoked", "removed"})
"""Events after which a job may be finished or removed."""

LOOK_AGAIN_S = 5.0
"""How long to rely on events alone: the stream is trimmed, so a slow reader can miss some."""


def encode_data(name: str, data: object) -> str:
    """Return a job's payload as JSON.

    Raises:
        PayloadError: JSON can't write the data, or they are too large.
    """
    return codec.encode(data, f"The data of job {name!r}")


class Deadline:
    """The end of a wait.

    Args:
        timeout: How long from now: a duration, seconds, or None for no limit.
    """

    def __init__(self, timeout: Duration | None) -> None:
        self.seconds = None if timeout is None else check_duration(timeout, "timeout").total_seconds()
        self._end = None if self.seconds is None else time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds left, at most :data:`LOOK_AGAIN_S`."""
        return LOOK_AGAIN_S if self._end is None else min(LOOK_AGAIN_S, max(0.0, self._end - time.monotonic()))

    @property
    def remaining(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether the deadline has passed."""
        return self._end is not None and time.monotonic() >= self._end


class AsyncFlag:
    """Raised by one task, waited for by another."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def up(self) -> None:
        """Raise the flag. It stays up until a wait has seen it."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait until the flag is up or the timeout expires, then lower it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


class Flag:
    """Raised by one thread, waited for by another."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def up(self) -> None:
        """Raise the flag. It stays up until a wait has seen it."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait until the flag is up or the timeout expires, then lower it."""
        self._event.wait(seconds)
        self._event.clear()


def describe_age(since_ms: int, now_ms: int) -> str:
    """Return a duration in its largest whole unit, such as ``5 min``."""
    seconds = max(0, now_ms - since_ms) / 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{seconds:.1f} s"


def outcome(queue: str, record: JobRecord) -> Any:
    """Return a finished job's result.

    Raises:
        JobFailedError: It failed.
        PayloadError: Its result was written by another serializer.
    """
    if record.state is JobState.FAILED:
        raise JobFailedError(queue, record.id, record.failed_reason or "it left no reason")
    return record.result


def event_outcome(queue: str, event: Event) -> Any:
    """Return the result of a job that was removed as soon as it finished, as its last event reports it.

    Raises:
        JobFailedError: It failed, or was removed before it could finish.
    """
    if event.type == "completed":
        stored = event.fields.get("returnvalue")
        return None if stored is None else codec.decode(stored, "The job's result")
    raise JobFailedError(queue, event.job_id, event.fields.get("failedReason") or event.type)


@dataclass(frozen=True, slots=True)
class FlowNode:
    """One node of a flow, in its current state.

    Attributes:
        name: The node.
        job_id: Its job.
        queue: Its job's queue.
        depth: 0 without dependencies; otherwise one more than its deepest dependency.
        deps: The nodes it depends on.
        state: Its job's state, also if it was removed after it ended; None if the job does not exist, and nothing says
            how it ended.
        seconds: How long its latest attempt took; None while unfinished.
        attempts: Attempts that have started, according to the job's record.
        failed_reason: Why its last attempt failed.
        outcome: Its state, or ``upstream_failed`` or ``skipped`` if it ended without running; None like ``state``.
        waited: Seconds from when it could have started (the end of its last dependency, or else its submission) to its
            latest start; None before, and if it never ran.
        started_at: When its latest attempt started.
        finished_at: When it ended.
        rule: The trigger rule: which outcomes of ``deps`` it needs to run.
        elements: For a mapped node, how many of its elements are in each state; None for all others.
    """

    name: str
    job_id: str
    queue: str
    depth: int = 0
    deps: tuple[str, ...] = ()
    state: JobState | None = None
    seconds: float | None = None
    attempts: int = 0
    failed_reason: str | None = field(default=None)
    outcome: str | None = None
    waited: float | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    rule: str = "all_success"
    elements: Mapping[str, int] | None = None

    def to_dict(self) -> Mapping[str, Any]:
        """Return the node as a JSON-serializable dict."""
        return {name: getattr(self, name) for name in self.__slots__}
