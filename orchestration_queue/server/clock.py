"""Time: this machine's clock and the server's, sleeps, and pauses between attempts.

All code reads the time here, so that tests can change it. Leases are compared across machines, whose own clocks may be
wrong, or jump, so they use the server's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from orchestration_queue.errors import UsageError

__all__ = ["Pauses", "ServerClock", "Sleeper", "ahead", "epoch_ms", "now", "now_ms", "on_travel", "travel"]

_ahead_ms = 0
_listeners: dict[object, Callable[[], object]] = {}


def now_ms() -> int:
    """Return the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000 + _ahead_ms


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.fromtimestamp(now_ms() / 1000, UTC)


def epoch_ms(at: datetime) -> int:
    """Return a time in epoch milliseconds.

    Raises:
        UsageError: It is not a time, or has no time zone.
    """
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise UsageError(f"A time must be a datetime with a time zone, got {at!r}; pass datetime(..., tzinfo=UTC).")
    return round(at.timestamp() * 1000)


def ahead() -> timedelta:
    """Return how far this process's clock is ahead of the machine's; negative if behind, zero outside of tests."""
    return timedelta(milliseconds=_ahead_ms)


def travel(distance: timedelta) -> None:
    """Set this process's clock ahead of the machine's by ``distance``, for delays, schedules and leases alike.

    For tests. The server's own clock, by which keys expire, is unaffected.
    """
    global _ahead_ms
    _ahead_ms = round(distance / timedelta(milliseconds=1))
    for listener in list(_listeners.values()):
        listener()


def on_travel(listener: Callable[[], object]) -> Callable[[], None]:
    """Call a function, in the thread that changes the clock, whenever the clock has been set.

    Returns:
        A function that stops this. Calling it twice is harmless.
    """
    ticket = object()
    _listeners[ticket] = listener

    def forget() -> None:
        _listeners.pop(ticket, None)

    return forget


class ServerClock:
    """The server's clock, extrapolated between readings with the monotonic clock. Thread-safe.

    Before the first reading it is this machine's clock.
    """

    def __init__(self) -> None:
        self._start_ms = (time.time() - time.monotonic()) * 1000

    def set(self, server_ms: int, asked: float, answered: float) -> None:
        """Adjust the clock to a reading of the server's, as far as the two contradict.

        The server read its clock between request and reply, and truncated to milliseconds. Within these bounds our time
        is kept, so that it doesn't jump back and forth with every reading.

        Args:
            server_ms: The server's time, epoch milliseconds.
            asked: When it was requested, by :func:`time.monotonic`.
            answered: When the reply arrived.
        """
        earliest, latest = server_ms - answered * 1000, server_ms + 1 - asked * 1000
        self._start_ms = min(max(self._start_ms, earliest), latest)

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds. Tests that change the time change this clock, too."""
        return int(self._start_ms + time.monotonic() * 1000) + _ahead_ms


class Pauses:
    """Growing pauses between attempts, the first of which is now.

    Args:
        first_s: The first pause.
        longest_s: The maximum; each pause is twice the previous one until then.
    """

    def __init__(self, first_s: float = 0.05, longest_s: float = 2.0) -> None:
        self._started = time.monotonic()
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    @property
    def waited_s(self) -> float:
        """Seconds since the first attempt."""
        return time.monotonic() - self._started

    def next_s(self) -> float:
        """Return how long to wait before the next attempt."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Start again with the first pause."""
        self._next_s = self._first_s


class Sleeper:
    """Sleeps of one task that end when the clock is changed, in any thread. Use it as a context manager.

    A change between two sleeps ends the next one, so that none is missed.
    """

    def wake(self) -> None:
        """End the current sleep, or the next one."""
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
        """Sleep this long, or until the clock is changed."""
        # Not `wait_for`, which up to Python 3.11 loses a cancellation that arrives together with the change.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._travelled.wait()
        self._travelled.clear()
