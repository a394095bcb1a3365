"""Jobs per minute that come into queues and leave them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Rate", "Rates"]

_RECENT = 5
"""Minutes over which rates are averaged."""
_APART_S, _LEAST_S, _MOST_S = 10, 2, 600
_MOST_QUEUES = 1024


@dataclass(frozen=True, slots=True)
class Rate:
    """Jobs per minute, on average over the last minutes.

    Attributes:
        added: How many came; None until the queue was read twice.
        ended: How many completed or failed; until then in the last full minutes.
    """

    added: float | None
    ended: float


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    depth: int
    ended: int
    """Jobs that had ended within the minute."""


class Rates:
    """The rates of queues, from what pages read of them.

    The server counts by minute what ended, not what came. What came between two looks is what ended, and what the queue
    holds more than before.
    """

    def __init__(self) -> None:
        self._looks: dict[str, deque[_Look]] = {}

    def look(self, queue: str, now: float, depth: int, ended: Sequence[int]) -> Rate:
        """Note what a queue holds, and return its rates.

        Args:
            queue: The queue.
            now: Seconds since the epoch.
            depth: Its unfinished jobs.
            ended: How many ended in each of the last minutes, at least ten, the current one last.
        """
        looks = self._looks.pop(queue, deque())
        self._looks[queue] = looks
        if len(self._looks) > _MOST_QUEUES:
            del self._looks[next(iter(self._looks))]
        while looks and (now - looks[0].at > _MOST_S or (len(looks) > 1 and now - looks[1].at >= _RECENT * 60)):
            looks.popleft()
        rate = Rate(None, sum(ended[-_RECENT - 1 : -1]) / _RECENT)
        if looks and (seconds := now - looks[0].at) >= _LEAST_S:
            first = looks[0]
            minutes = int(now // 60) - int(first.at // 60)
            left = sum(ended[len(ended) - 1 - minutes :]) - first.ended
            came = max(0, depth - first.depth + left)
            rate = Rate(came * 60 / seconds, max(0, left) * 60 / seconds)
        if not looks or now - looks[-1].at >= _APART_S:
            looks.append(_Look(now, depth, ended[-1]))
        return rate
