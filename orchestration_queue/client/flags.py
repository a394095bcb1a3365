"""A flag that one waiter waits for and another raises, in an async and a sync version."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

__all__ = ["AsyncFlag", "Flag"]


class AsyncFlag:
    """Raised by one task, waited for by another."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def up(self) -> None:
        """Raise the flag. It stays up until a wait has seen it."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait until the flag is up or the timeout expires, then lower it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


class Flag:
    """Raised by one thread, waited for by another."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def up(self) -> None:
        """Raise the flag. It stays up until a wait has seen it."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait until the flag is up or the timeout expires, then lower it."""
        self._event.wait(seconds)
        self._event.clear()
