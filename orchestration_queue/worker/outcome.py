"""From how a handler ended to what the server is told. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestration_queue.errors import OrchestrationQueueError, PayloadError, UnrecoverableError
from orchestration_queue.options import Backoff, Retention, backoff_from_wire, retention_from_wire, wire_number
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.lease import KEEP, Completion, Failure, Lease

__all__ = ["Strategy", "completed", "failed", "reason_of"]

Strategy = Callable[[int, BaseException], int]
"""A custom backoff: number of failures and the error in, milliseconds out."""

_REASON_LENGTH = 8_000


def reason_of(error: BaseException) -> str:
    """An error as the text that a failed job carries: its type and message, at most 8,000 characters.

    Our own errors are sentences, and stand without their type.
    """
    message = str(error)
    if not message:
        return type(error).__name__
    speaks_for_itself = isinstance(error, (OrchestrationQueueError, UnrecoverableError, TimeoutError))
    return (message if speaks_for_itself else f"{type(error).__name__}: {message}")[:_REASON_LENGTH]


def completed(lease: Lease, result: Any) -> Completion | Failure:
    """The handler returned. A result the wire cannot carry fails the job, for good: trying again cannot help."""
    try:
        encoded = codec.encode(result, "Return value")
    except PayloadError as error:
        return Failure(lease, str(error), retention=_retention(lease, "removeOnFail"))
    return Completion(lease, encoded, _retention(lease, "removeOnComplete"))


def failed(lease: Lease, error: BaseException, chance: float) -> Failure:
    """The handler raised.

    Args:
        lease: The job.
        error: What it raised.
        chance: A random number in [0, 1) for the backoff's jitter.
    """
    return Failure(
        lease,
        reason_of(error),
        max_attempts=0
        if isinstance(error, UnrecoverableError)
        else int(wire_number(lease.record.options.get("attempts"))),
        backoff_ms=_backoff(lease).wait_ms(lease.record.attempts_made + 1, chance),
        retention=_retention(lease, "removeOnFail"),
    )


_AT_ONCE = Backoff(type="fixed", delay=0)


def _backoff(lease: Lease) -> Backoff:
    return backoff_from_wire(lease.record.options) or _AT_ONCE


def _retention(lease: Lease, option: str) -> Retention:
    return retention_from_wire(lease.record.options.get(option)) or KEEP
