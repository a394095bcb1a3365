"""How payloads become text and back. JSON by default; gzip on request; never anything that runs code."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from typing import Any

from orchestration_queue.errors import PayloadError

__all__ = ["MAX_PAYLOAD_BYTES", "compress", "decode", "dump_json", "encode"]

MAX_PAYLOAD_BYTES = 1_048_576
"""Most bytes of encoded data, before compression."""

_GZIP_MARK = "gz:"

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
"""Made once: :func:`json.dumps` makes an encoder for every call that asks for more than the defaults."""


def dump_json(value: object) -> str:
    """Compact JSON, as every language on this wire reads it."""
    return _encode(value)


def encode(value: object, what: str = "The job's data") -> str:
    """Encode a payload.

    Args:
        value: Anything JSON can say.
        what: Names the payload in the error.

    Raises:
        PayloadError: It is not JSON, or is larger than 1 MiB.
    """
    try:
        encoded = dump_json(value)
        size = len(encoded.encode())  # refuses half a surrogate pair, which is text to Python and to nobody else
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(
            f"{what} cannot be written as JSON ({error}); pass dicts, lists, text, finite numbers, booleans and None."
        ) from None
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadError(
            f"{what} exceeds maximum size ({size:,} bytes, and {MAX_PAYLOAD_BYTES:,} are allowed); "
            "store it elsewhere and pass its path."
        )
    return encoded


def compress(encoded: str) -> str:
    """Gzip an encoded payload into the form that every reader detects by its prefix."""
    packed = gzip.compress(encoded.encode(), mtime=0)
    return _GZIP_MARK + base64.b64encode(packed).decode("ascii")


def decode(stored: str, what: str = "The job's data") -> Any:
    """Decode a stored payload, compressed or not.

    Raises:
        PayloadError: It is not JSON, is damaged, or unpacks to more than 1 MiB.
    """
    try:
        return json.loads(_unpack(stored) if stored.startswith(_GZIP_MARK) else stored)
    except (ValueError, zlib.error, EOFError) as error:
        raise PayloadError(
            f"{what} cannot be read ({error}): it was written with another serializer, or is damaged; "
            "read it with the client that wrote it."
        ) from None


def _unpack(stored: str) -> str:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    packed = base64.b64decode(stored.removeprefix(_GZIP_MARK), validate=True)
    unpacked = unpacker.decompress(packed, MAX_PAYLOAD_BYTES + 1)
    if len(unpacked) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"it unpacks to more than {MAX_PAYLOAD_BYTES:,} bytes")
    return unpacked.decode()
