"""Waiting for something real to happen, instead of sleeping."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["at_load", "wait_until", "wait_until_sync"]

_SHORTEST_S: Final = 0.005
_LONGEST_S: Final = 0.25


def at_load(seconds: float) -> float:
    """How long something may take on this machine now that takes so long on one that has nothing else to do."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


async def wait_until(predicate: Callable[[], object], description: str, seconds: float = 60.0) -> None:
    """Return as soon as the predicate holds; fail with the description when it does not in time."""
    for pause_s in _pauses(predicate, description, seconds):
        await asyncio.sleep(pause_s)


def wait_until_sync(predicate: Callable[[], object], description: str, seconds: float = 60.0) -> None:
    """As :func:`wait_until`, outside of a loop."""
    for pause_s in _pauses(predicate, description, seconds):
        time.sleep(pause_s)


def _pauses(predicate: Callable[[], object], description: str, seconds: float) -> Iterator[float]:
    """Yield how long to wait until the predicate is asked again: longer, the longer the last answer and all of it took.

    Asking a database or `/proc` all the time would take the processor from the very thing that is waited for.
    """
    began = time.monotonic()
    deadline = began + seconds
    while True:
        asked = time.monotonic()
        if predicate():
            return
        answered = time.monotonic()
        if answered > deadline:
            raise AssertionError(f"Waited {seconds:g} s in vain for {description}.")
        yield min(max(_SHORTEST_S, 10 * (answered - asked), (answered - began) / 20), _LONGEST_S)
