"""How far Spark is, in the words of a job's progress: the same for every way in which it runs."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["ProgressReporter"]


class ProgressReporter:
    """Reports how far an application is: at intervals, only changes, and never a lower percentage within a query.

    Args:
        tell: Receives a percentage of the query's tasks, and a text.
        every_s: Seconds between two times.
    """

    def __init__(self, tell: Callable[[int, str], None], every_s: float = 0.5) -> None:
        self._tell = tell
        self._every_s = every_s
        self._most: dict[int, int] = {}
        self._told: tuple[int, str] | None = None
        self._next = 0.0

    def at(self, query: int, completed: int, total: int, running: int, read: float) -> None:
        """The application is here.

        Args:
            query: The number of its query: of what one action runs.
            completed: How many of its tasks have succeeded.
            total: How many there are, as far as is known.
            running: How many run now.
            read: Bytes that it has read from its inputs.
        """
        if not total:
            return
        # Spark plans some stages late, and then there is more to do; what was told is not taken back.
        self._most[query] = percent = max(self._most.get(query, 0), 100 * completed // total)
        told = (percent, f"query {query}: {completed} of {total} tasks, {running} running, {_size(read)} read")
        if told != self._told and time.monotonic() >= self._next:
            self._told, self._next = told, time.monotonic() + self._every_s
            self._tell(*told)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
