"""Waiting for something real to happen, instead of sleeping."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

__all__ = ["at_load", "wait_until", "wait_until_sync"]


def at_load(seconds: float) -> float:
    """How long something may take on this machine now that takes so long on one that has nothing else to do."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


async def wait_until(predicate: Callable[[], object], description: str, seconds: float = 60.0) -> None:
    """Return as soon as the predicate holds; fail with the description when it does not in time."""
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited {seconds:g} s in vain for {description}.")
        await asyncio.sleep(0.005)


def wait_until_sync(predicate: Callable[[], object], description: str, seconds: float = 60.0) -> None:
    """As :func:`wait_until`, outside of a loop."""
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited {seconds:g} s in vain for {description}.")
        time.sleep(0.005)
