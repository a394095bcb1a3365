"""The part of a running job that needs no server, shared by its sync and async versions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from orchestration_queue.errors import UsageError
from orchestration_queue.options import MAX_DURATION, Duration, Fallback, fallback_from_wire, milliseconds
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import GroupHold, Lease, Postponement, Settlement, Suspension
from orchestration_queue.protocol.operations.suspension import Signal, read_signals
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server.clock import now_ms

__all__ = [
    "BaseActiveJob",
    "CodeVersion",
    "JobInterrupt",
    "OtherVersion",
    "RunState",
    "duration_ms",
    "find_interrupt",
    "moment_ms",
]

_Place = Literal["front", "back", "fail"]
OtherVersion: TypeAlias = Literal["fail", "wait"]
"""What to do with a job whose steps another version of the code has stored: fail it, or let it wait for that one."""


class JobInterrupt(BaseException):
    """Ends this run of the job without an outcome, so that the job runs again later.

    Methods of the job raise it, not handlers. It is not an :class:`Exception`, so a handler's own ``except Exception``
    doesn't catch it.

    Args:
        settle: Builds the settlement to send from the job's lease.
    """

    def __init__(self, settle: Callable[[Lease], Settlement]) -> None:
        super().__init__("The handler ended its run before the job was done; let this exception pass.")
        self.settle = settle


def find_interrupt(error: BaseException) -> BaseException:
    """Return the interrupt of a group that holds nothing else, as task groups raise it; otherwise the error itself."""
    found = error
    while isinstance(found, BaseExceptionGroup) and found.split(JobInterrupt)[1] is None:
        found = found.exceptions[0]
    return found if isinstance(found, JobInterrupt) else error


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """The version of the code that runs a job.

    Attributes:
        name: The version.
        otherwise: What to do with a job whose steps another version has stored: fail it for good, or let it wait for a
            worker of that version.

    Raises:
        UsageError: The version is not text of 1 to 100 printable characters, or there is no such policy.
    """

    name: str
    otherwise: OtherVersion = "fail"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or not 0 < len(self.name) <= _VERSION_LENGTH:
            raise UsageError(
                f"A code's version must be 1 to {_VERSION_LENGTH} printable characters, got {self.name!r:.200}; "
                "pass `version='2'`."
            )
        if self.otherwise not in get_args(OtherVersion):
            raise UsageError(
                f"What to do with jobs of other versions must be 'fail' or 'wait', got {self.otherwise!r}; pass one."
            )


_VERSION_LENGTH = 100


@dataclass(slots=True)
class RunState:
    """The state of a running job, shared by its sync and async versions."""

    record: JobRecord
    keys: QueueKeys
    must_stop: bool = False
    is_discarded: bool = False
    version: CodeVersion | None = None


class BaseActiveJob:
    """The running job, without methods that need the server.

    Methods named ``move_to_...``, :meth:`suspend` and :meth:`rate_limit_group` never return: they end this run of the
    handler with an exception that is not an :class:`Exception`, so ``except Exception`` doesn't catch it. The job runs
    again later, from the beginning of its handler, without counting an attempt.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state

    @property
    def record(self) -> JobRecord:
        """The job when it started."""
        return self._state.record

    @property
    def id(self) -> str:
        """The job's id."""
        return self.record.id

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._state.keys.queue

    @property
    def ref(self) -> ParentRef:
        """The reference to pass as ``parent`` of jobs that this one should wait for."""
        return ParentRef(self._state.keys, self.id)

    @property
    def name(self) -> str:
        """The job's name: the task to run."""
        return self.record.name

    @property
    def data(self) -> Any:
        """Its payload."""
        return self.record.data

    @property
    def headers(self) -> dict[str, str]:
        """Its headers: strings that its producer set, and the trace context it belongs to."""
        return self.record.headers

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.record.attempts_made + 1

    @property
    def added_at(self) -> datetime | None:
        """When it was added."""
        return self.record.added_at

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals it received in all its suspensions, oldest first."""
        return read_signals(self.record.fields.get("signals"))

    @property
    def fallback(self) -> Fallback | None:
        """The fallback that this attempt should use; None in the first attempt, and after the last fallback."""
        return fallback_from_wire(self.record.options.get("fallbacks"), self.record.fallback_index)

    @property
    def should_stop(self) -> bool:
        """True once the handler should end soon: its timeout expired, or the worker gave the job up or is leaving."""
        return self._state.must_stop

    def request_stop(self) -> None:
        """Ask the handler to end soon."""
        self._state.must_stop = True

    @property
    def version(self) -> CodeVersion | None:
        """The version of the code that runs it; None if that does not matter."""
        return self._state.version

    def pin_version(self, version: str, *, otherwise: OtherVersion = "fail") -> None:
        """Continue no steps that another version of this handler's code has stored.

        Call it before the first step, or use ``@tasks.task(version=...)``. The first step stores the version, as a step
        named ``oq.version``. Forget that one to continue with other code.

        Args:
            version: The version of this code.
            otherwise: What to do with a job of another version when it uses its first step: ``fail`` fails it for
                good, ``wait`` returns it each second until a worker of that version takes it.

        Raises:
            UsageError: The version is not text, or there is no such policy.
        """
        self._state.version = CodeVersion(version, otherwise)

    @property
    def is_discarded(self) -> bool:
        """Whether this attempt is the last."""
        return self._state.is_discarded

    def discard(self) -> None:
        """Use no further attempts: if this one fails, the job fails for good."""
        self._state.is_discarded = True

    def move_to_delayed(
        self, until: datetime | Duration, *, data: Any = None, next_step: str | None = None
    ) -> NoReturn:
        """End this run; the job runs again at another time.

        Args:
            until: When: an aware datetime (one in the past means now), or a duration from now.
            data: Its new payload; None keeps the current one.
            next_step: Stored in the payload as ``step``, for the handler to read. The payload must be a dict.

        Raises:
            UsageError: The time or the step is invalid, or the payload is not a dict that could hold a step.
            PayloadError: The data is not JSON, or larger than 1 MiB.
        """
        until_ms = moment_ms(until)
        if next_step is not None:
            data = self._with_step(data, next_step)
        encoded = "" if data is None else codec.encode(data, f"The data of job {self.name!r}")
        raise JobInterrupt(partial(Postponement, until_ms=until_ms, data=encoded))

    def _with_step(self, data: Any, step: str) -> dict[str, Any]:
        if not isinstance(step, str) or not step:
            raise UsageError(
                f"`next_step` must be a non-empty string, got {step!r}; pass the name that the handler reads."
            )
        payload = self.data if data is None else data
        if not isinstance(payload, dict):
            raise UsageError(
                f"The payload of job {self.id!r} is a {type(payload).__name__}, which can't hold a step; "
                "pass a dict as `data`."
            )
        return {**payload, "step": step}

    def suspend(self, reason: str = "", timeout: Duration | None = None) -> NoReturn:
        """End this run; the job runs again when it is signaled, with the signal in :attr:`signals`.

        Any worker may run it then. Its handler starts from the beginning, and reads ``job.signals`` to see how far the
        job has come.

        Args:
            reason: Shown to readers of suspended jobs.
            timeout: A duration, or seconds, after which the job fails unless it was signaled; None means no limit.

        Raises:
            UsageError: The reason is not a string, or the timeout is not a duration.
            PayloadError: The reason is larger than 1 MiB.
        """
        if not isinstance(reason, str):
            raise UsageError(f"`reason` must be text, got {reason!r}; pass text, or '' for no reason.")
        codec.encode(reason, "The reason")
        timeout_ms = 0 if timeout is None else duration_ms("timeout", timeout)
        raise JobInterrupt(partial(Suspension, reason=reason, timeout_ms=timeout_ms))

    def rate_limit_group(self, duration: Duration, *, job: _Place = "front", extend: bool = True) -> NoReturn:
        """End this run, and start no job of this job's ordering group for some time.

        Args:
            duration: How long the group pauses: a duration, or seconds.
            job: Where this job goes: ``front`` or ``back`` of its group, ``fail`` fails it for good.
            extend: Keep a later end that is already set; False replaces it.

        Raises:
            UsageError: The job has no group, or the duration or the position is invalid.
        """
        if self.record.group is None:
            raise UsageError(
                f"Job {self.id!r} of queue {self.queue!r} has no ordering group to pause; "
                "add it with JobOptions(ordering=...), or raise RateLimitError to pause the worker."
            )
        if job not in get_args(_Place):
            raise UsageError(f"`job` must be one of {', '.join(get_args(_Place))}, got {job!r}; pass `job='front'`.")
        held_ms = duration_ms("duration", duration)
        raise JobInterrupt(partial(GroupHold, duration_ms=held_ms, job=job, is_extending=bool(extend)))


def duration_ms(name: str, duration: Duration) -> int:
    """Return a duration in milliseconds, at least one."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and math.isfinite(seconds)
    if not is_number or not 0.001 <= seconds <= MAX_DURATION.total_seconds():
        raise UsageError(
            f"`{name}` must be a timedelta or seconds, got {duration!r}; pass one from a millisecond to "
            f"{MAX_DURATION.days} days."
        )
    return milliseconds(timedelta(seconds=seconds))


def moment_ms(until: datetime | Duration) -> int:
    """Return a time in epoch milliseconds."""
    now = now_ms()
    latest_ms = now + milliseconds(MAX_DURATION)
    if not isinstance(until, datetime):
        found_ms = now + milliseconds(check_duration(until, "until"))
    elif until.tzinfo is not None:
        found_ms = max(now, int(until.timestamp() * 1000))
    else:
        raise UsageError(f"`until` must have a time zone, got {until!r}; pass an aware datetime, or a timedelta.")
    if found_ms > latest_ms:
        raise UsageError(f"`until` must be at most {MAX_DURATION.days} days away, got {until!r}; pass an earlier time.")
    return found_ms
