"""The three values of every exchange with the server.

A :class:`Call` says what to send. An :class:`Operation` adds how to read the reply. A transport (one layer up) sends
it. None of them uses a socket, a clock or an event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

__all__ = ["Call", "Operation", "Reply", "Word", "integer", "optional_text", "text", "texts"]

Word: TypeAlias = str | bytes | int | float
"""An argument of a command."""

Reply: TypeAlias = Any
"""A raw RESP2 reply: bytes, int, None, or a list of these."""

T_co = TypeVar("T_co", covariant=True)


class Call(NamedTuple):
    """One command for the server. A tuple, since one is built per job, in a quarter of a frozen dataclass's time.

    Attributes:
        name: A function of ours (``glidemq_addJob``) or a plain command (``HGETALL``).
        keys: The keys it names.
        args: What follows the keys.
        is_function: Whether ``name`` is a server function.
        only_reads: Whether that function is registered as one that writes nothing.
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
