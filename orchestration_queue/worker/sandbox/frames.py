"""Messages between a worker and its sandbox processes: length-prefixed JSON over a socket pair.

JSON in both directions: the worker never executes anything that comes from a sandbox.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

from orchestration_queue.errors import SandboxDiedError
from orchestration_queue.protocol.codec import MAX_PAYLOAD_BYTES, plain

__all__ = ["Frame", "pack", "receive", "take"]

Frame: TypeAlias = dict[str, Any]
"""A message; its ``kind`` names its type."""

_LENGTH = struct.Struct("!I")
_MOST_BYTES = 16 * MAX_PAYLOAD_BYTES
"""Enough for a payload in which every character is escaped twice."""


def pack(frame: Mapping[str, Any]) -> bytes:
    """Return a message as bytes.

    Raises:
        TypeError: It is not JSON-serializable.
    """
    body = json.dumps(frame, separators=(",", ":"), allow_nan=False, default=plain).encode()
    return _LENGTH.pack(len(body)) + body


async def receive(reader: asyncio.StreamReader) -> Frame:
    """Return the next message.

    Raises:
        asyncio.IncompleteReadError: The other side is gone.
        SandboxDiedError: It is not a message.
    """
    size = _size(await reader.readexactly(_LENGTH.size))
    return _read(await reader.readexactly(size))


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
        raise SandboxDiedError(f"The sandbox process sent {size:,} bytes at once, and was ended; it must be damaged.")
    return int(size)


def _read(body: bytes) -> Frame:
    try:
        frame = json.loads(body)
    except ValueError as error:
        raise SandboxDiedError(f"The sandbox process sent no JSON ({error}), and was ended.") from None
    if not isinstance(frame, dict):
        raise SandboxDiedError("The sandbox process sent no message, and was ended.")
    return frame
