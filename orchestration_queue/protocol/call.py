"""The values of every exchange with the server, and conversations of several exchanges.

A :class:`Call` says what to send. An :class:`Operation` adds how to read the reply. A :data:`Conversation` generates
calls, and is sent their replies, so that any transport can drive it, of either face, and a test without one. A
transport (one layer up) sends calls, as :func:`pack` writes them. None of this uses a socket, a clock or an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import inf
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from hiredis import pack_command

from orchestration_queue.errors import UsageError

__all__ = [
    "BATCH_SIZE",
    "Call",
    "Conversation",
    "Operation",
    "Reply",
    "Word",
    "all_good",
    "chunks",
    "integer",
    "optional_text",
    "pack",
    "read_time",
    "text",
    "texts",
    "together",
    "wait_s",
]

Word: TypeAlias = str | bytes | int | float
"""An argument of a command."""

Reply: TypeAlias = Any
"""A raw RESP2 reply: bytes, int, None, or a list of these."""

T_co = TypeVar("T_co", covariant=True)


class Call(NamedTuple):
    """One command for the server. A tuple, since one is built per job, in a quarter of the time of a frozen dataclass.

    Attributes:
        name: A function of ours (``glidemq_addJob``) or a plain command (``HGETALL``).
        keys: The keys it names.
        args: The words after the keys.
        is_function: Whether ``name`` is a server function.
        only_reads: Whether that function is registered as one that does not write.
        near: A key on whose server it must run, for a command that names its keys later or has no key.
    """

    name: str
    keys: tuple[str, ...] = ()
    args: tuple[Word, ...] = ()
    is_function: bool = False
    only_reads: bool = False
    near: str | None = None

    @property
    def first_key(self) -> str | None:
        """The key that decides the cluster slot; None if any server will do."""
        return self.keys[0] if self.keys else self.near

    @property
    def words(self) -> tuple[Word, ...]:
        """The command as it is sent."""
        if self.is_function:
            return ("FCALL_RO" if self.only_reads else "FCALL", self.name, len(self.keys), *self.keys, *self.args)
        return (self.name, *self.keys, *self.args)


@dataclass(frozen=True, slots=True)
class Operation(Generic[T_co]):
    """A call, and how to read its reply."""

    call: Call
    read: Callable[[Reply], T_co]


def text(reply: Reply) -> str:
    """Read a bulk string."""
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def optional_text(reply: Reply) -> str | None:
    """Read a bulk string that may be absent."""
    return None if reply is None else text(reply)


def texts(reply: Reply) -> list[str]:
    """Read an array of bulk strings."""
    return [text(item) for item in reply or ()]


def integer(reply: Reply) -> int:
    """Read an integer."""
    return int(reply)


def read_time(reply: Reply) -> int:
    """Read the reply to ``TIME``, in epoch milliseconds."""
    seconds, microseconds = map(integer, reply)
    return seconds * 1000 + microseconds // 1000


T = TypeVar("T")


Conversation: TypeAlias = Generator[Sequence[Call], list[Reply], T]
"""Yields the calls of one exchange, is sent their replies, and finally returns a ``T``."""

BATCH_SIZE = 1000
"""Maximum calls per exchange."""


def chunks(items: Sequence[T], size: int = BATCH_SIZE) -> Iterable[Sequence[T]]:
    """Cut a sequence into pieces of at most ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))


def all_good(replies: list[Reply]) -> list[Reply]:
    """Return the replies if none of them is an error.

    Raises:
        ServerError: The first error among them.
    """
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def together(exchanges: Sequence[Conversation[T]]) -> Conversation[list[T]]:
    """Run several conversations together: the first exchanges of all in one, then the second, and so on."""
    results: dict[int, T] = {}
    waiting: dict[int, Sequence[Call]] = {}

    def advance(place: int, replies: list[Reply] | None) -> None:
        try:
            waiting[place] = next(exchanges[place]) if replies is None else exchanges[place].send(replies)
        except StopIteration as end:
            results[place] = end.value

    for place in range(len(exchanges)):
        advance(place, None)
    while waiting:
        current, waiting = waiting, {}
        replies = iter((yield [call for calls in current.values() for call in calls]))
        for place, calls in current.items():
            advance(place, list(islice(replies, len(calls))))
    return [results[place] for place in range(len(exchanges))]


def wait_s(call: Call) -> float:
    """Return for how many seconds the server may keep a blocking command waiting; infinite if it has no limit."""
    words = call.words
    if call.name in ("XREAD", "XREADGROUP"):
        blocks = [ms for word, ms in pairwise(words) if word == "BLOCK" and isinstance(ms, (int, float))]
        return (blocks[0] / 1000 or inf) if blocks else 0.0
    longest = float(words[-1]) or inf
    return longest / 1000 if call.name in ("WAIT", "WAITAOF") else longest


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
