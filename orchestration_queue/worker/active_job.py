"""What both faces of the running job know and decide without asking the server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NoReturn, get_args

from orchestration_queue.errors import UsageError
from orchestration_queue.options import MAX_DURATION, Duration, Fallback, fallback_from_wire, milliseconds
from orchestration_queue.options.durations import checked_duration
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import GroupHold, Postponement, Suspension
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.protocol.signals import Signal, read_signals
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker.interrupts import JobInterrupt

__all__ = ["BaseActiveJob", "RunState"]

_Place = Literal["front", "back", "fail"]


@dataclass(slots=True)
class RunState:
    """The state of a running job, shared by its sync and async faces."""

    record: JobRecord
    keys: QueueKeys
    must_stop: bool = False
    is_discarded: bool = False


class BaseActiveJob:
    """The running job, as far as it is known here.

    Methods named ``move_to_...``, :meth:`suspend` and :meth:`rate_limit_group` never return: they end this run of the
    handler, by an exception that is no :class:`Exception` and that handlers let pass. The job runs again later, from
    the beginning of its handler, without an attempt being counted.
    """

    def __init__(self, standing: RunState) -> None:
        self._state = standing

    @property
    def record(self) -> JobRecord:
        """The job as it started."""
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
        """The ``parent`` to pass when adding a job that this one will wait for."""
        return ParentRef(self._state.keys, self.id)

    @property
    def name(self) -> str:
        """What kind of job it is: the task's name."""
        return self.record.name

    @property
    def data(self) -> Any:
        """Its payload."""
        return self.record.data

    @property
    def headers(self) -> dict[str, str]:
        """Short texts that travel with it: what its adder gave it, and the context of the trace it belongs to."""
        return self.record.headers

    @property
    def attempt(self) -> int:
        """Which try this is: 1 for the first."""
        return self.record.attempts_made + 1

    @property
    def added_at(self) -> datetime | None:
        """When it was added."""
        return self.record.added_at

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What it was told while it was suspended, oldest first; of all its suspensions."""
        return read_signals(self.record.fields.get("signals"))

    @property
    def fallback(self) -> Fallback | None:
        """Which of its fallbacks this attempt is to use; None in the first attempt, and after the last fallback."""
        return fallback_from_wire(self.record.options.get("fallbacks"), self.record.fallback_index)

    @property
    def should_stop(self) -> bool:
        """True once the worker gave the job up (its time is over, or the worker must leave): end soon."""
        return self._state.must_stop

    def request_stop(self) -> None:
        """Ask the handler to end soon."""
        self._state.must_stop = True

    @property
    def is_discarded(self) -> bool:
        """Whether this attempt is the last."""
        return self._state.is_discarded

    def discard(self) -> None:
        """Give up all further attempts: should this one fail, the job fails for good."""
        self._state.is_discarded = True

    def move_to_delayed(
        self, until: datetime | Duration, *, data: Any = None, next_step: str | None = None
    ) -> NoReturn:
        """End this run; the job runs again at another time.

        Args:
            until: When: an aware time (one that has passed means now), or a duration from now.
            data: Its payload from then on; None keeps what it has.
            next_step: Stored in the payload as ``step``, for the handler to find; the payload must be a dict.

        Raises:
            UsageError: The time or the step is invalid, or the payload is not a dict that could hold a step.
            PayloadError: The data is not JSON, or too large.
        """
        until_ms = _moment_ms(until)
        if next_step is not None:
            data = self._with_step(data, next_step)
        encoded = "" if data is None else codec.encode(data, f"The data of job {self.name!r}")
        raise JobInterrupt(partial(Postponement, until_ms=until_ms, data=encoded))

    def _with_step(self, data: Any, step: str) -> dict[str, Any]:
        if not isinstance(step, str) or not step:
            raise UsageError(f"{step!r} is no name of a step; pass the name that the handler will look for.")
        payload = self.data if data is None else data
        if not isinstance(payload, dict):
            raise UsageError(
                f"The payload of job {self.id!r} is a {type(payload).__name__}, and only a dict can hold a step; "
                "pass a dict as data."
            )
        return {**payload, "step": step}

    def suspend(self, reason: str = "", timeout: Duration | None = None) -> NoReturn:
        """End this run; the job runs again when it is signalled, with the signal in :attr:`signals`.

        A worker of any process may run it then: there is no continuation but the handler itself, which reads
        ``job.signals`` to see how far the job is.

        Args:
            reason: Shown to readers of suspended jobs.
            timeout: A duration, or seconds, after which the job fails unless it was signalled; None means no limit.

        Raises:
            UsageError: The reason is no text, or the timeout no duration.
            PayloadError: The reason is larger than 1 MiB.
        """
        if not isinstance(reason, str):
            raise UsageError(f"`reason` must be text, got {reason!r}; pass text, or '' for no reason.")
        codec.encode(reason, "The reason")
        timeout_ms = 0 if timeout is None else _duration_ms("A timeout", timeout)
        raise JobInterrupt(partial(Suspension, reason=reason, timeout_ms=timeout_ms))

    def rate_limit_group(self, duration: Duration, *, job: _Place = "front", extend: bool = True) -> NoReturn:
        """End this run; no job of this job's ordering group starts before the time is over.

        Args:
            duration: How long the group pauses: a duration, or seconds.
            job: What becomes of this job: it goes to the ``front`` or the ``back`` of its group, or is to ``fail``
                for good.
            extend: Keep a later end that is set already; False replaces it.

        Raises:
            UsageError: The job has no group, or the duration or the position is invalid.
        """
        if self.record.group is None:
            raise UsageError(
                f"Job {self.id!r} of queue {self.queue!r} is of no ordering group that could pause; "
                "add it with JobOptions(ordering=...), or raise RateLimitError to pause the worker."
            )
        if job not in get_args(_Place):
            raise UsageError(f"{job!r} is no place for the job; pass one of {', '.join(get_args(_Place))}.")
        duration_ms = _duration_ms("A pause", duration)
        raise JobInterrupt(partial(GroupHold, duration_ms=duration_ms, job=job, is_extending=bool(extend)))


def _duration_ms(what: str, duration: Duration) -> int:
    """Return a duration as the wire counts time; at least a millisecond."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and math.isfinite(seconds)
    if not is_number or not 0.001 <= seconds <= MAX_DURATION.total_seconds():
        raise UsageError(
            f"{what} must be a timedelta or seconds, got {duration!r}; pass one from a millisecond to "
            f"{MAX_DURATION.days} days."
        )
    return milliseconds(timedelta(seconds=seconds))


def _moment_ms(until: datetime | Duration) -> int:
    """Return a time as the wire counts it."""
    now = now_ms()
    latest_ms = now + milliseconds(MAX_DURATION)
    if not isinstance(until, datetime):
        moment_ms = now + milliseconds(checked_duration(until, "until"))
    elif until.tzinfo is not None:
        moment_ms = max(now, int(until.timestamp() * 1000))
    else:
        raise UsageError(f"`until` must have a time zone, got {until!r}; pass an aware datetime, or a timedelta.")
    if moment_ms > latest_ms:
        raise UsageError(f"{until!r} is more than {MAX_DURATION.days} days away; choose an earlier time.")
    return moment_ms
