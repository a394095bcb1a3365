"""MessagePack as ChasquiMQ reads and writes it: positional structs, text as str, bytes as bin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestration_queue._extras import named_extra
from orchestration_queue.errors import PayloadError
from orchestration_queue.protocol.codec import plain

with named_extra():
    import msgpack

__all__ = ["MAX_U32", "MAX_U64", "Struct", "pack", "unpack"]

MAX_U32 = 2**32 - 1
MAX_U64 = 2**64 - 1
_MOST_KEPT = 65_536
_packers: list[msgpack.Packer] = []
"""Idle ones: making one takes ten times as long as packing a small job. Each has one user at a time."""


def pack(value: object, what: str = "The job's data") -> bytes:
    """Pack a value.

    Raises:
        PayloadError: MessagePack can't represent it.
    """
    try:
        packer = _packers.pop()
    except IndexError:
        packer = msgpack.Packer(use_bin_type=True, default=plain)
    try:
        packed: bytes = packer.pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise PayloadError(
            f"{what} cannot be written as MessagePack ({error}); "
            "pass bytes, 64-bit numbers, and what pydantic writes as JSON."
        ) from None
    if len(packed) <= _MOST_KEPT:  # its buffer never shrinks
        _packers.append(packer)
    return packed


def unpack(packed: bytes, what: str = "The job's data") -> Any:
    """Unpack the first value; like the original, ignore bytes that follow it.

    Raises:
        PayloadError: It is not MessagePack.
    """
    try:
        return msgpack.unpackb(packed, strict_map_key=False)
    except msgpack.ExtraData as extra:
        return extra.unpacked
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise PayloadError(
            f"{what} cannot be read as MessagePack ({why}); read it with the client that wrote it."
        ) from None


class Struct:
    """The fields of a packed struct: an array in their order, or a map with their names.

    Args:
        value: What was unpacked.
        what: Names the struct in errors.
        names: All fields, in order.
        required: How many of them an array must have.

    Raises:
        PayloadError: It is neither, or has too few or too many elements.
    """

    def __init__(self, value: object, what: str, names: Sequence[str], required: int) -> None:
        self._what = what
        if isinstance(value, dict):
            self._values = {name: value[name] for name in names if name in value}
        elif isinstance(value, list) and required <= len(value) <= len(names):
            self._values = dict(zip(names, value, strict=False))
        else:
            raise self.error("it", f"neither an array of {required} to {len(names)} elements nor a map")

    def error(self, name: str, why: str) -> PayloadError:
        """Build the error for a field that breaks the format."""
        return PayloadError(f"{self._what} is malformed: {name} is {why}; check which client wrote it.")

    def get(self, name: str) -> object:
        """Return a field as it is; None when it is absent."""
        return self._values.get(name)

    def has(self, name: str) -> bool:
        """Return whether the field is there."""
        return name in self._values

    def text(self, name: str) -> str:
        """Return a field that is a string, or its bytes."""
        value = self.get(name)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if not isinstance(value, str):
            raise self.error(name, "not text")
        return value

    def integer(self, name: str, most: int = MAX_U64) -> int:
        """Return a field that is a whole number from 0 to `most`."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self.error(name, f"not a whole number from 0 to {most}")
        return value

    def optional_integer(self, name: str, most: int = MAX_U64) -> int | None:
        """Return a whole number; None when it is absent or nil."""
        return None if self.get(name) is None else self.integer(name, most)

    def binary(self, name: str) -> bytes:
        """Return a field that is bytes, or an array of their values."""
        value = self.get(name)
        if isinstance(value, bytes):
            return value
        try:
            if isinstance(value, list) and not any(isinstance(item, bool) for item in value):
                return bytes(value)
        except (TypeError, ValueError):
            pass
        raise self.error(name, "not bytes")
