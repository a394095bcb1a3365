"""Commands as bytes. hiredis packs them ten times as fast as redis-py's own packer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import cast

from hiredis import pack_command

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import Call, Word

__all__ = ["pack"]

_pack = cast("Callable[[tuple[Word, ...]], bytes]", pack_command)  # its stub allows one word only
_words = attrgetter("words")
_MULTI = b"*1\r\n$5\r\nMULTI\r\n"
_EXEC = b"*1\r\n$4\r\nEXEC\r\n"
_ASKING = b"*1\r\n$6\r\nASKING\r\n"


def pack(calls: Sequence[Call], *, atomic: bool = False, asking: bool = False) -> bytes:
    """Return commands as bytes, one after the other.

    Args:
        calls: The commands.
        atomic: All between MULTI and EXEC.
        asking: With ASKING before each, or once before MULTI, for the node that a slot is moving to.

    Raises:
        UsageError: A word can't be written as UTF-8.
    """
    try:
        packed = [*map(_pack, map(_words, calls))]
    except UnicodeEncodeError as error:
        raise UsageError(
            f"A call holds text that is not Unicode ({error.reason} at position {error.start}), which the wire cannot "
            "carry; remove lone surrogates, for instance with text.encode('utf-8', 'replace')."
        ) from None
    if atomic:
        packed = [_MULTI, *packed, _EXEC]
    if asking:
        return _ASKING + (b"" if atomic else _ASKING).join(packed)
    return b"".join(packed)
