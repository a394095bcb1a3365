"""How a handler ended in its process, as JSON: errors and interrupts, which have the same meaning in the worker."""

from __future__ import annotations

import traceback
from dataclasses import fields
from datetime import timedelta
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from orchestration_queue import errors
from orchestration_queue.errors import (
    Failed,
    OrchestrationQueueError,
    RateLimitError,
    SandboxDiedError,
    SandboxedError,
    UnrecoverableError,
)
from orchestration_queue.protocol.lease import Lease, Settlement
from orchestration_queue.protocol.outcome import is_unrecoverable, reason_of, without_exit
from orchestration_queue.worker.active_job import JobInterrupt
from orchestration_queue.worker.sandbox.frames import Frame

__all__ = ["dump", "load", "load_in_handler"]

_SETTLEMENTS: dict[str, TypeAdapter[Settlement]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(Settlement)}
_TRACEBACK_LENGTH = 32_000


def dump(error: BaseException, lease: Lease) -> Frame:
    """Return an exception as JSON. An interrupt is settled here, so that only its settlement must be sent."""
    if isinstance(error, JobInterrupt):
        try:
            return {"interrupt": _dump_settlement(error.settle(lease))}
        except Exception as failure:
            error = failure
    error = without_exit(error)
    described: Frame = {
        "type": type(error).__name__,
        "reason": reason_of(error),
        "traceback": "".join(traceback.format_exception(error))[-_TRACEBACK_LENGTH:],
    }
    if isinstance(error, RateLimitError):
        return {"rate_limit_s": error.delay and error.delay.total_seconds(), **described}
    if isinstance(error, Failed):
        described["failure_kind"] = error.kind
    return {"is_unrecoverable": is_unrecoverable(error), **described}


def load(frame: Frame, lease: Lease) -> BaseException:
    """Return the exception that the worker raises for it."""
    try:
        if "interrupt" in frame:
            return _load_interrupt(frame["interrupt"], lease)
        if "rate_limit_s" in frame:
            seconds = frame["rate_limit_s"]
            return RateLimitError(None if seconds is None else timedelta(seconds=float(seconds)))
        if frame["is_unrecoverable"] or "failure_kind" in frame:
            reason = str(frame["reason"])
            is_last = frame["is_unrecoverable"]
            error = UnrecoverableError(reason) if is_last else Failed(reason, kind=str(frame["failure_kind"]))
            error.add_note(str(frame["traceback"]))
            return error
        return SandboxedError(str(frame["reason"]), kind=str(frame["type"]), traceback=str(frame["traceback"]))
    except (KeyError, TypeError, ValueError, OverflowError, ValidationError) as problem:
        return SandboxDiedError(f"The sandbox process sent an outcome that makes no sense ({problem!r}).")


def load_in_handler(frame: Frame, lease: Lease) -> BaseException:
    """Return the exception that a call of the job raises in the sandbox, with the same types as in other handlers."""
    known = getattr(errors, frame.get("type", ""), None)
    if isinstance(known, type) and issubclass(known, OrchestrationQueueError):
        # Not with its constructor, which builds the message from values that are not here.
        return known.__new__(known, frame["reason"])
    return load(frame, lease)


def _dump_settlement(settlement: Settlement) -> Frame:
    values = {field.name: getattr(settlement, field.name) for field in fields(settlement) if field.name != "lease"}
    return {"type": type(settlement).__name__, "values": to_jsonable_python(values)}


def _load_interrupt(frame: Any, lease: Lease) -> JobInterrupt:
    settlement = _SETTLEMENTS[frame["type"]].validate_python({**frame["values"], "lease": lease})
    return JobInterrupt(lambda _: settlement)
