"""Time as the server has it. Leases are compared across machines, whose own clocks may be wrong, or jump."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from orchestration_queue.server import clock

__all__ = ["ServerClock"]

_MILLISECOND: Final = timedelta(milliseconds=1)


class ServerClock:
    """The server's clock, extrapolated between readings by the monotonic clock. Thread-safe.

    Until the first reading it is this machine's clock.
    """

    def __init__(self) -> None:
        self._start_ms = (time.time() - time.monotonic()) * 1000

    def set(self, server_ms: int, asked: float, answered: float) -> None:
        """Take over what the server said, as far as it contradicts us.

        It read its clock at some moment between our question and its answer, and cut off what is less than a
        millisecond. Within these bounds our time is kept, so that it does not go back and forth with every answer.

        Args:
            server_ms: Its time, epoch milliseconds.
            asked: When it was asked, by :func:`time.monotonic`.
            answered: When its answer came.
        """
        earliest, latest = server_ms - answered * 1000, server_ms + 1 - asked * 1000
        self._start_ms = min(max(self._start_ms, earliest), latest)

    def now_ms(self) -> int:
        """Epoch milliseconds. A test that travels in time takes this clock along."""
        return int(self._start_ms + time.monotonic() * 1000) + clock.ahead() // _MILLISECOND
