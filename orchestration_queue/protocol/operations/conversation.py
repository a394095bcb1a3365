"""Conversations with the server: calls go out, replies come in, until there is a result.

A step is a generator, so that it can be driven by any transport, of either face, and tested by none.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import TypeAlias, TypeVar

from orchestration_queue.protocol.call import Call, Reply

__all__ = ["BATCH_SIZE", "Conversation", "all_good", "chunks", "together"]

T = TypeVar("T")


Conversation: TypeAlias = Generator[Sequence[Call], list[Reply], T]
"""Yields the calls of one exchange to the server, is sent their replies, and returns a ``T``."""

BATCH_SIZE = 1000
"""Most calls of one exchange."""


def chunks(items: Sequence[T], size: int = BATCH_SIZE) -> Iterable[Sequence[T]]:
    """Cut a sequence into pieces of at most ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))


def all_good(replies: list[Reply]) -> list[Reply]:
    """Return the replies, when none of them is an error.

    Raises:
        ServerError: The first error among them.
    """
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def together(exchanges: Sequence[Conversation[T]]) -> Conversation[list[T]]:
    """Run several conversations at a time: the first exchanges of all in one, then the second, and so on."""
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
        trip, waiting = waiting, {}
        replies = iter((yield [call for calls in trip.values() for call in calls]))
        for place, calls in trip.items():
            advance(place, list(islice(replies, len(calls))))
    return [results[place] for place in range(len(exchanges))]
