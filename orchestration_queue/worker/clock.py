"""The server's time. Leases are compared across machines, whose own clocks may be wrong, or jump."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from orchestration_queue.server import clock

__all__ = ["ServerClock"]

_MILLISECOND: Final = timedelta(milliseconds=1)


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
        return int(self._start_ms + time.monotonic() * 1000) + clock.ahead() // _MILLISECOND
