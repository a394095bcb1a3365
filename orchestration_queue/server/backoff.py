"""How long to try, and how long to wait between two tries."""

from __future__ import annotations

import time

__all__ = ["RetryBackoff"]

_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25


class RetryBackoff:
    """Growing pauses within a time that starts now."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._pause_s = _PAUSE_S

    @property
    def waited_s(self) -> float:
        """Seconds since the first try."""
        return time.monotonic() - self._started

    def next_pause_s(self) -> float:
        """Seconds to wait before the next try."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s
