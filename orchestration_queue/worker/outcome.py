"""From how a handler ended to what the server is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeAlias

from orchestration_queue.errors import OrchestrationQueueError, PayloadError, RateLimitError, UnrecoverableError
from orchestration_queue.options import (
    Backoff,
    Retention,
    backoff_from_wire,
    milliseconds,
    retention_from_wire,
    wire_number,
)
from orchestration_queue.options.base import MAX_DURATION
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.lease import KEEP, Completion, Failure, Lease

__all__ = ["Strategy", "completed", "failed", "is_unrecoverable", "rate_limited", "reason_of", "without_exit"]

log = logging.getLogger("orchestration_queue.worker")

Strategy: TypeAlias = Callable[[int, BaseException], timedelta]
"""A custom backoff: the number of failures, 1 for the first, and the error in; how long to wait out."""

_REASON_LENGTH = 8_000
_NO_STRATEGIES: Mapping[str, Strategy] = MappingProxyType({})
_AT_ONCE = Backoff(type="fixed", delay=0)


def reason_of(error: BaseException) -> str:
    """An error as the text that a failed job carries: its type and message, at most 8,000 characters.

    Our own errors are sentences, and stand without their type.
    """
    message = str(error)
    if not message:
        return type(error).__name__
    speaks_for_itself = isinstance(error, (OrchestrationQueueError, UnrecoverableError, TimeoutError))
    return (message if speaks_for_itself else f"{type(error).__name__}: {message}")[:_REASON_LENGTH]


def is_unrecoverable(error: BaseException) -> bool:
    """Whether trying again is pointless: by type, or, for errors that came from elsewhere, by the type's name."""
    return any(base.__name__ == UnrecoverableError.__name__ for base in type(error).__mro__)


def without_exit(error: BaseException) -> BaseException:
    """The error; for a wish to exit, which passed on would end the worker together with its job, one that says so."""
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        return RuntimeError(f"the handler called exit ({error!r})")
    return error


def completed(lease: Lease, result: Any) -> Completion | Failure:
    """The handler returned. A result the wire cannot carry fails the job, for good: trying again cannot help."""
    try:
        encoded = codec.encode(result, "Return value")
    except PayloadError as error:
        return Failure(lease, str(error), retention=_retention(lease, "removeOnFail"))
    return Completion(lease, encoded, _retention(lease, "removeOnComplete"))


def failed(
    lease: Lease,
    error: BaseException,
    chance: float,
    *,
    strategies: Mapping[str, Strategy] = _NO_STRATEGIES,
    is_discarded: bool = False,
) -> Failure:
    """The handler raised.

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
    )


def rate_limited(lease: Lease, error: RateLimitError, default: timedelta) -> Failure:
    """The handler was refused by what it calls: there is always another attempt, after the delay it asks for."""
    delay = default if error.delay is None else error.delay
    return Failure(
        lease,
        "rate limited",
        max_attempts=lease.record.attempts_made + 2,
        backoff_ms=milliseconds(min(max(delay, timedelta(0)), MAX_DURATION)),
        retention=_retention(lease, "removeOnFail"),
    )


def _wait_ms(lease: Lease, error: BaseException, chance: float, strategies: Mapping[str, Strategy]) -> int:
    """The pause before the next attempt. A strategy that fails costs no outcome: the stored delay stands in."""
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
    return backoff.wait_ms(failures, chance)


def _retention(lease: Lease, option: str) -> Retention:
    return retention_from_wire(lease.record.options.get(option)) or KEEP
