"""Calls as bytes. hiredis does it an order of magnitude faster than redis-py's own packer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from hiredis import pack_command

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import Call, Word

__all__ = ["pack"]

_pack = cast("Callable[[tuple[Word, ...]], bytes]", pack_command)  # its stub allows one word only
_MULTI = b"*1\r\n$5\r\nMULTI\r\n"
_EXEC = b"*1\r\n$4\r\nEXEC\r\n"


def pack(calls: Sequence[Call], *, atomic: bool = False) -> bytes:
    """Write commands one after the other, inside MULTI and EXEC if ``atomic``.

    Raises:
        UsageError: A word cannot be written as UTF-8.
    """
    try:
        packed = [_pack(call.words) for call in calls]
    except UnicodeEncodeError as error:
        raise UsageError(
            f"A call holds text that is not Unicode ({error.reason} at position {error.start}), which the wire cannot "
            "carry; remove lone surrogates, for instance with text.encode('utf-8', 'replace')."
        ) from None
    return b"".join((_MULTI, *packed, _EXEC) if atomic else packed)
