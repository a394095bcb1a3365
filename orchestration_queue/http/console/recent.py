"""Values that are costly to read: however many pages are open, the server is asked once in a few seconds.

What takes long to read is read more rarely: usually at most a twentieth of the time is spent on it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from orchestration_queue.errors import OrchestrationQueueError

__all__ = ["Recent", "or_none"]

T = TypeVar("T")
_REST = 20


class Recent:
    """Values by key.

    Args:
        seconds: How old a value may be before it is read again.
        at_once: For how much longer it is still shown, while it is read again for the next who asks.
        rest: A value counts as new for as many times as long as it took to read it.
        most: How many values are kept.
    """

    def __init__(self, seconds: float, *, at_once: float = 0, rest: float = _REST, most: int = 1024) -> None:
        self._seconds, self._at_once, self._rest, self._most = seconds, at_once, rest, most
        self._values: dict[object, tuple[float, float, Any]] = {}
        self._readings: dict[object, asyncio.Task[Any]] = {}

    async def get(self, key: object, read: Callable[[], Awaitable[T]]) -> T:
        """Return the value of a key."""
        known = self._values.get(key)
        age = math.inf if known is None else time.monotonic() - known[0]
        fresh_s = self._seconds if known is None else max(self._seconds, self._rest * known[1])
        if age > fresh_s and key not in self._readings:
            self._readings[key] = reading = asyncio.create_task(self._read(key, read))
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        if known is None or age > fresh_s + self._at_once:
            found: T = await asyncio.shield(self._readings[key])
        else:
            found = known[2]
        return found

    async def within(self, seconds: float, key: object, read: Callable[[], Awaitable[T]]) -> T | None:
        """Return the value of a key; None if reading takes longer, which continues in the background."""
        found = asyncio.ensure_future(self.get(key, read))
        done, _ = await asyncio.wait([found], timeout=seconds)
        if not done:
            found.cancel()
        return found.result() if done else None

    async def aclose(self) -> None:
        """Stop reading."""
        readings = list(self._readings.values())
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)

    async def _read(self, key: object, read: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        try:
            value = await read()
            self._values.pop(key, None)
            while len(self._values) >= self._most:
                del self._values[next(iter(self._values))]
            now = time.monotonic()
            self._values[key] = (now, now - began, value)
        finally:
            del self._readings[key]
        return value


async def or_none(reading: Awaitable[T]) -> T | None:
    """Return what is read; None where it cannot be."""
    try:
        return await reading
    except OrchestrationQueueError:
        return None
