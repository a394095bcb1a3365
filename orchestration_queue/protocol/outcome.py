"""How a handler ended: the settlement to report to the server, and the server's verdict."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import (
    Failed,
    OrchestrationQueueError,
    PayloadError,
    RateLimitError,
    SandboxedError,
    UnrecoverableError,
)
from orchestration_queue.options import (
    MAX_DURATION,
    Backoff,
    Retention,
    backoff_from_wire,
    milliseconds,
    retention_from_wire,
    wire_number,
)
from orchestration_queue.options.job import BACKOFF_TYPES
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.lease import (
    KEEP,
    ChildrenWait,
    Completion,
    Failure,
    GroupHold,
    Lease,
    Postponement,
    Settlement,
    Suspension,
)
from orchestration_queue.states import FailureKind

__all__ = [
    "JobTimeoutError",
    "Strategy",
    "Verdict",
    "cancelled",
    "completed",
    "failed",
    "is_unrecoverable",
    "malformed",
    "message_of",
    "rate_limited",
    "reason_of",
    "settled",
    "traceback_of",
    "without_exit",
]

log = get_logger("orchestration_queue.worker")

Strategy: TypeAlias = Callable[[int, BaseException], timedelta]
"""A custom backoff: from the number of failures, from 1, and the error, to the pause."""

_REASON_LENGTH = 8_000
_KIND_LENGTH = 200
_TRACEBACK_BYTES = 8_192
_PACKAGE = str(Path(__file__).resolve().parent.parent / "_").removesuffix("_")
_NO_STRATEGIES: Mapping[str, Strategy] = MappingProxyType({})
_AT_ONCE = Backoff(type="fixed", delay=0)


class Verdict(Enum):
    """The server's verdict on a reported outcome."""

    COMPLETED = "c"
    RETRYING = "r"
    FAILED = "f"
    DELAYED = "d"
    WAITING_CHILDREN = "w"
    READY = "a"
    """It asked to wait for its children, but all have completed: it is ready again."""
    SUSPENDED = "s"
    HELD = "g"
    """It is parked, and its group is delayed."""
    LOST = "l"
    """The job's lease was lost; nothing was changed."""


class JobTimeoutError(TimeoutError):
    """A handler took longer than its job's timeout.

    Args:
        limit_s: The timeout in seconds. It ends the traceback, since the reason is the wire's own words.
    """

    def __init__(self, limit_s: float | None) -> None:
        super().__init__("Job timeout exceeded")
        if limit_s is not None:
            self.add_note(f"The limit is {limit_s:g} s, by the option `timeout` of the job, its task or its queue.")


def reason_of(error: BaseException) -> str:
    """Return an error as the text that a failed job stores: its type and message, at most 8,000 characters.

    Errors of this package are sentences, and are stored without their type.
    """
    message = message_of(error)
    if not message:
        return type(error).__name__
    speaks_for_itself = isinstance(error, (OrchestrationQueueError, Failed, UnrecoverableError, TimeoutError))
    return _sendable(message if speaks_for_itself else f"{type(error).__name__}: {message}")[:_REASON_LENGTH]


def message_of(error: BaseException) -> str:
    """Return the error's message as valid text. Its ``__str__`` is user code, which may fail."""
    try:
        return _sendable(str(error))
    except BaseException as failure:
        return f"(its __str__ raised {type(failure).__name__})"


def _sendable(text: str) -> str:
    """Return the text without lone surrogates, which no server accepts."""
    return text.encode("utf-8", "backslashreplace").decode()


def class_of(error: BaseException) -> str:
    """Return the error's qualified class, without the module of built-in ones."""
    if isinstance(error, SandboxedError):
        return error.kind
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def kind_of(error: BaseException) -> str:
    """Return the kind of failure: that of a :class:`Failed`, ``timeout``, or the error's qualified class."""
    if isinstance(error, Failed):
        return _sendable(error.kind)
    if isinstance(error, JobTimeoutError):
        return FailureKind.TIMEOUT
    return _sendable(class_of(error))[:_KIND_LENGTH]


def traceback_of(error: BaseException) -> str:
    """Return where the handler failed: the end of its traceback, at most 8 KiB, without this package's own frames."""
    if isinstance(error, SandboxedError):
        return error.traceback[-_TRACEBACK_BYTES:]
    try:
        traced = traceback.TracebackException.from_exception(error, capture_locals=False)
        user_frames = [frame for frame in traced.stack if not frame.filename.startswith(_PACKAGE)]
        if user_frames:
            traced.stack[:] = user_frames
        text = "".join(traced.format())
    except BaseException:
        return reason_of(error)
    return _sendable(text).encode()[-_TRACEBACK_BYTES:].decode(errors="ignore")


def is_unrecoverable(error: BaseException) -> bool:
    """Whether trying again is pointless: by type, or, for errors that came from elsewhere, by the type's name."""
    return any(base.__name__ == UnrecoverableError.__name__ for base in type(error).__mro__)


def without_exit(error: BaseException) -> BaseException:
    """Return the error, or, for an exit, which would end the worker with its job, an error that reports it."""
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        try:
            said = repr(error)
        except BaseException:
            said = type(error).__name__
        return RuntimeError(f"the handler called exit ({said})")
    return error


def completed(lease: Lease, result: Any) -> Completion | Failure:
    """Settle a handler that returned. A result that can't be encoded fails the job for good: a retry can't help."""
    try:
        encoded = codec.encode(result, "Return value")
    except PayloadError as error:
        kind = class_of(error)
        return Failure(lease, str(error), retention=_retention(lease, "removeOnFail"), kind=kind, error=kind)
    return Completion(lease, encoded, _retention(lease, "removeOnComplete"))


def failed(
    lease: Lease,
    error: BaseException,
    chance: float,
    *,
    strategies: Mapping[str, Strategy] = _NO_STRATEGIES,
    is_discarded: bool = False,
) -> Failure:
    """Settle a handler that raised.

    Args:
        lease: The job.
        error: What it raised.
        chance: A random number in [0, 1) for the backoff's jitter.
        strategies: Custom backoffs, by the name that a job's options call them.
        is_discarded: The handler gave up all further attempts.
    """
    is_last = is_discarded or is_unrecoverable(error)
    attempts = 0 if is_last else int(wire_number(lease.record.options.get("attempts")))
    return Failure(
        lease,
        reason_of(error),
        max_attempts=attempts,
        backoff_ms=_wait_ms(lease, error, chance, strategies) if attempts else 0,
        retention=_retention(lease, "removeOnFail"),
        kind=kind_of(error),
        traceback=traceback_of(error),
        error=class_of(error),
    )


def cancelled(lease: Lease) -> Failure:
    """Build the settlement of a job that was cancelled while it ran."""
    return Failure(lease, "revoked", kind=FailureKind.CANCELLED)


def malformed(lease: Lease, problem: str) -> Failure:
    """Build the settlement of a job whose record no worker can run. It is not retried: the record stays as it is."""
    reason = f"Job {lease.job_id!r} cannot run: {problem}; remove it, or correct the record and retry the job."
    return Failure(lease, _sendable(reason)[:_REASON_LENGTH], kind=FailureKind.MALFORMED)


def rate_limited(lease: Lease, error: RateLimitError, default: timedelta) -> Failure:
    """Settle a handler that raised RateLimitError: there is always another attempt, after its delay."""
    delay = default if error.delay is None else error.delay
    return Failure(
        lease,
        "rate limited",
        # The server counts this attempt as failed; one more is always left.
        max_attempts=lease.record.attempts_made + 2,
        backoff_ms=milliseconds(min(max(delay, timedelta(0)), MAX_DURATION)),
        retention=_retention(lease, "removeOnFail"),
        kind=FailureKind.RATE_LIMITED,
    )


def _wait_ms(lease: Lease, error: BaseException, chance: float, strategies: Mapping[str, Strategy]) -> int:
    """Return the pause before the next attempt. A strategy that fails or is missing costs no outcome."""
    backoff = backoff_from_wire(lease.record.options) or _AT_ONCE
    failures = lease.record.attempts_made + 1
    if strategy := strategies.get(backoff.type):
        try:
            return milliseconds(min(max(strategy(failures, error), timedelta(0)), MAX_DURATION))
        except Exception:
            log.exception(
                "The backoff strategy %r gave no timedelta for job %s; its stored delay is used",
                backoff.type,
                lease.job_id,
            )
    elif backoff.type not in BACKOFF_TYPES:
        log.warning(
            "Job %s has a backoff of type %r, which is not among this worker's strategies; its stored delay is used, "
            "so pass `strategies={%r: ...}` to the worker",
            lease.job_id,
            backoff.type,
            backoff.type,
        )
    return backoff.wait_ms(failures, chance)


def _retention(lease: Lease, option: str) -> Retention:
    return retention_from_wire(lease.record.options.get(option)) or KEEP


def settled(settlement: Settlement) -> oq1.Settled:
    """Return a settlement as the server's function takes it."""
    match settlement:
        case Completion(lease, result, retention):
            return _encode("c", lease, result, retention=retention)
        case Failure(lease, reason, max_attempts, backoff_ms, retention):
            return _encode("f", lease, reason, wait_ms=backoff_ms, max_attempts=max_attempts, retention=retention)
        case Postponement(lease, until_ms, data):
            return _encode("d", lease, data, wait_ms=until_ms)
        case ChildrenWait(lease):
            return _encode("w", lease)
        case Suspension(lease, reason, timeout_ms, resumes):
            return _encode("n" if resumes else "s", lease, reason, wait_ms=timeout_ms)
        case GroupHold(lease, duration_ms, job, is_extending):
            return _encode("g", lease, job, wait_ms=duration_ms, extend=is_extending)


def _encode(
    kind: str,
    lease: Lease,
    payload: str = "",
    *,
    wait_ms: int = 0,
    max_attempts: int = 0,
    extend: bool = False,
    retention: Retention = KEEP,
) -> oq1.Settled:
    mode, count, age_s = retention.wire_arguments
    return oq1.Settled(
        kind=kind,
        job_id=lease.job_id,
        entry_id=lease.entry_id,
        taken_ms=lease.taken_ms,
        stalled_count=lease.stalled_count,
        payload=payload,
        wait_ms=wait_ms,
        max_attempts=max_attempts,
        extend=extend,
        remove_mode=mode,
        remove_count=count,
        remove_age_s=age_s,
    )
