"""Reading a stream to its end and on, with exact knowledge of what was dropped before it was read."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration_queue.protocol.call import Call, Reply, text
from orchestration_queue.protocol.events import place
from orchestration_queue.protocol.operations.reading import FIRST_EVENT

__all__ = ["Position", "Tail", "entries_after", "look", "read_tail"]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a stream.

    Attributes:
        id: The entry that stands there, or stood; the next one read comes after it.
        count: How many entries were ever added up to it; None when nobody counted.
    """

    id: str
    count: int | None


@dataclass(frozen=True, slots=True)
class Tail:
    """What a stream holds.

    Attributes:
        last: Its end.
        dropped: How many of its entries are gone.
        oldest: Id of the first that is there; None when none is.
    """

    last: Position
    dropped: int
    oldest: str | None

    def has_lost(self, at: Position) -> bool:
        """Whether entries behind a place are gone. Where nobody counted, only surely not if one before it is there."""
        if at.count is not None:
            return self.dropped > at.count
        return self.dropped > 0 and (self.oldest is None or place(self.oldest) > place(at.id))


EMPTY = Tail(Position(FIRST_EVENT, 0), 0, None)
"""A stream to which nothing was ever added."""


def look(stream: str) -> Call:
    """Ask what a stream holds."""
    return Call("XINFO", args=("STREAM", stream), near=stream)


def read_tail(reply: Reply) -> Tail:
    """Read the reply to :func:`look`; a stream that is not there is empty.

    Raises:
        ServerError: The server refused for another reason.
    """
    if isinstance(reply, Exception):
        if "no such key" in str(reply):
            return EMPTY
        raise reply
    facts = dict(zip(map(text, reply[::2]), reply[1::2], strict=True))
    added, first = facts["entries-added"], facts["first-entry"]
    last = Position(text(facts["last-generated-id"]), added)
    return Tail(last, added - facts["length"], text(first[0]) if first else None)


def entries_after(stream: str, after: str, until: str, count: int) -> Call:
    """The next entries of a range."""
    return Call("XRANGE", (stream,), (f"({after}", until, "COUNT", count))
