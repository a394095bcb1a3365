"""Messages between a worker and its sandbox processes: length-prefixed JSON over a socket pair.

JSON in both directions: the worker never executes anything that comes from a sandbox. Errors and interrupts are sent as
JSON, too, and mean the same on both sides.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, TypeAlias, cast, get_args

from pydantic import TypeAdapter, ValidationError

from orchestration_queue import errors
from orchestration_queue.errors import (
    Failed,
    OrchestrationQueueError,
    RateLimitError,
    SandboxDiedError,
    SandboxedError,
    UnrecoverableError,
)
from orchestration_queue.protocol.codec import MAX_PAYLOAD_BYTES, plain, refuse_equal_keys
from orchestration_queue.protocol.lease import Lease, Settlement
from orchestration_queue.protocol.outcome import is_unrecoverable, reason_of, traceback_of, without_exit
from orchestration_queue.worker.active_job import JobInterrupt, find_interrupt

__all__ = ["Frame", "FrameChannel", "dump_error", "load_error", "load_error_in_handler", "pack", "take"]

Frame: TypeAlias = dict[str, Any]
"""A message; its ``kind`` names its type."""

_LENGTH = struct.Struct("!I")
_MOST_BYTES = 16 * MAX_PAYLOAD_BYTES
"""Enough for a payload in which every character is escaped twice."""
_encode_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=plain).encode


def pack(frame: Mapping[str, Any]) -> bytes:
    """Return a message as bytes.

    Raises:
        TypeError: It is not JSON-serializable.
        ValueError: A number is not finite, keys of a dict become equal, or it is too long to be received.
    """
    text = _encode_json(frame)
    refuse_equal_keys(text)
    body = text.encode()
    if len(body) > _MOST_BYTES:
        raise ValueError(f"it has {len(body):,} bytes, and a message at most {_MOST_BYTES:,}")
    return _LENGTH.pack(len(body)) + body


class FrameChannel(asyncio.Protocol):
    """The worker's end of a connection that carries messages. One coroutine at a time may receive.

    Attributes:
        is_closed: Whether nothing more can arrive.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self._received = bytearray()
        self._arrival: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport

    def send(self, frame: Mapping[str, Any]) -> None:
        """Send a message, as :func:`pack` packs it, without waiting until it is sent."""
        self.send_packed(pack(frame))

    def send_packed(self, packed: bytes) -> None:
        """Send a packed message."""
        self._transport.write(packed)

    async def receive(self) -> Frame:
        """Return the next message.

        Raises:
            EOFError: The other side is gone.
            SandboxDiedError: It is not a message.
        """
        while (frame := take(self._received)) is None:
            if self.is_closed:
                raise EOFError
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return frame

    def close(self) -> None:
        """Close the connection once everything is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Keep what arrived until it is received."""
        self._received += data
        self._wake()

    def connection_lost(self, _error: Exception | None) -> None:
        """End."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def take(received: bytearray) -> Frame | None:
    """Remove and return the first message of the received bytes; None while it is incomplete.

    Raises:
        SandboxDiedError: It is not a message.
    """
    if len(received) < _LENGTH.size or len(received) < (end := _LENGTH.size + _size(received[: _LENGTH.size])):
        return None
    body = bytes(received[_LENGTH.size : end])
    del received[:end]
    return _read(body)


def _size(head: bytes | bytearray) -> int:
    (size,) = _LENGTH.unpack(head)
    if size > _MOST_BYTES:
        raise SandboxDiedError(
            f"The sandbox process sent a message of {size:,} bytes, which is too long, and was stopped."
        )
    return int(size)


def _read(body: bytes) -> Frame:
    try:
        frame = json.loads(body)
    except ValueError as error:
        raise SandboxDiedError(
            f"The sandbox process sent a message that is not JSON ({error}), and was stopped."
        ) from None
    if not isinstance(frame, dict):
        raise SandboxDiedError("The sandbox process sent a message that is not a JSON object, and was stopped.")
    return frame


_SETTLEMENTS: dict[str, TypeAdapter[Settlement]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(Settlement)}


def dump_error(error: BaseException, lease: Lease) -> Frame:
    """Return an exception as JSON. An interrupt is settled here, so that only its settlement must be sent."""
    error = find_interrupt(error)
    if isinstance(error, JobInterrupt):
        try:
            return {"interrupt": _dump_settlement(error.settle(lease))}
        except Exception as failure:
            error = failure
    error = without_exit(error)
    described: Frame = {
        "type": type(error).__name__,
        "reason": reason_of(error),
        "traceback": traceback_of(error),
    }
    if isinstance(error, RateLimitError):
        return {"rate_limit_s": error.delay and error.delay.total_seconds(), **described}
    if isinstance(error, Failed):
        described["failure_kind"] = error.kind
    return {"is_unrecoverable": is_unrecoverable(error), **described}


def load_error(frame: Frame, lease: Lease) -> BaseException:
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
        return SandboxDiedError(f"The sandbox process sent an invalid outcome ({problem!r}).")


def load_error_in_handler(frame: Frame, lease: Lease) -> BaseException:
    """Return the exception that a call of the job raises in the sandbox, with the same types as in other handlers."""
    known = getattr(errors, frame.get("type", ""), None)
    if isinstance(known, type) and issubclass(known, OrchestrationQueueError):
        # Not with its constructor, which builds the message from values that are not here.
        return known.__new__(known, frame["reason"])
    return load_error(frame, lease)


def _dump_settlement(settlement: Settlement) -> Frame:
    values = {field.name: getattr(settlement, field.name) for field in fields(settlement) if field.name != "lease"}
    return {"type": type(settlement).__name__, "values": plain(values)}


def _load_interrupt(frame: Any, lease: Lease) -> JobInterrupt:
    settlement = _SETTLEMENTS[frame["type"]].validate_python({**frame["values"], "lease": lease})
    return JobInterrupt(lambda _: settlement)
