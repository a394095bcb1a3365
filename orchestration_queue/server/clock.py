"""The wall clock as every client of this wire counts it. One place, so that a test can travel in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from orchestration_queue.errors import UsageError

__all__ = ["Sleeper", "ahead", "epoch_ms", "now_ms", "on_travel", "travel"]

_ahead_ms = 0
_listeners: dict[object, Callable[[], object]] = {}


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000 + _ahead_ms


def epoch_ms(at: datetime) -> int:
    """Return a time as the wire counts it.

    Raises:
        UsageError: It is not a time, or has no time zone.
    """
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise UsageError(f"{at!r} does not say which moment it is; pass a datetime with a time zone.")
    return round(at.timestamp() * 1000)


def ahead() -> timedelta:
    """How far this process's clock is ahead of the machine's; negative when it is behind, zero outside of tests."""
    return timedelta(milliseconds=_ahead_ms)


def travel(distance: timedelta) -> None:
    """Set this process's clock ahead of the machine's by ``distance``, for delays, schedules and leases alike.

    For tests. The server's own clock, by which keys expire, stays.
    """
    global _ahead_ms
    _ahead_ms = round(distance / timedelta(milliseconds=1))
    for listener in list(_listeners.values()):
        listener()


def on_travel(listener: Callable[[], object]) -> Callable[[], None]:
    """Have a function called, in the traveller's thread, whenever the clock has been set.

    Returns:
        What ends that. Calling it twice does no harm.
    """
    ticket = object()
    _listeners[ticket] = listener

    def forget() -> None:
        _listeners.pop(ticket, None)

    return forget


class Sleeper:
    """Sleeps of one task that are over at once when the clock travels, in any thread. Use it as a context manager.

    A journey that began between two sleeps ends the next one, so that none is missed.
    """

    def wake(self) -> None:
        """End the sleep that lasts now, or the next one."""
        self._travelled.set()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._travelled = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._travelled.set)

        self._forget = on_travel(wake)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()

    async def sleep(self, seconds: float) -> None:
        """Sleep so long, or until the clock travels."""
        # Not `wait_for`, which up to Python 3.11 loses a cancellation that comes together with the journey.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._travelled.wait()
        self._travelled.clear()
