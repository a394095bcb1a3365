"""Values that are costly to read, kept for a few seconds: however many pages are open, the server is asked once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from orchestration_queue.errors import OrchestrationQueueError

__all__ = ["Recent", "or_none"]

T = TypeVar("T")
_MOST = 1024


class Recent:
    """Values by key, each with the time at which it was read.

    Args:
        seconds: How long a value is shown before it is read again.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: dict[object, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: object, read: Callable[[], Awaitable[T]]) -> T:
        """Return the value of a key; those who ask while it is being read wait for that one."""
        found = self._values.get(key)
        if found is None or time.monotonic() - found[0] > self._seconds:
            self._values.pop(key, None)
            while len(self._values) >= _MOST:
                del self._values[next(iter(self._values))]
            found = (time.monotonic(), asyncio.ensure_future(_read(read)))
            self._values[key] = found
        try:
            value: T = await asyncio.shield(found[1])
        except Exception:
            if self._values.get(key) is found:
                del self._values[key]
            raise
        return value


async def _read(read: Callable[[], Awaitable[T]]) -> T:
    return await read()


async def or_none(reading: Awaitable[T]) -> T | None:
    """Return what is read; None where it cannot be."""
    try:
        return await reading
    except OrchestrationQueueError:
        return None
