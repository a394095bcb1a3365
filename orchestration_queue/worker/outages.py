"""Detect outages, during which no lease could be renewed and healthy workers' jobs look stalled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Outages"]


class Outages:
    """Detects, from the duration of calls, that the server was unreachable for long.

    A lease is renewed after half its duration, so it survives an outage of less than about a third. After a longer
    outage, other workers need time to renew theirs before a missing renewal means anything.

    Args:
        lease_s: The usual lease in seconds.
        clock: Returns seconds; for tests.
    """

    def __init__(self, lease_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.set_lease(lease_s)
        self._clock = clock
        self._underway: dict[object, float] = {}
        self._recent_until = clock()

    def set_lease(self, lease_s: float) -> None:
        """Change the usual lease, in seconds."""
        self._long_s, self._moment_s = lease_s / 4, lease_s / 2

    @property
    def is_recent(self) -> bool:
        """Whether there is an outage, or was one just now."""
        now = self._clock()
        oldest = min(self._underway.values(), default=now)
        return now < self._recent_until or now - oldest > self._long_s

    @contextmanager
    def watch(self, long_s: float | None = None) -> Iterator[None]:
        """Time a call that normally returns immediately, whether it succeeds or not.

        Args:
            long_s: Maximum duration that is not an outage; default a quarter of a lease. A call that starts in the
                middle of an outage sees only the rest of it.
        """
        call, asked = object(), self._clock()
        self._underway[call] = asked
        try:
            yield
        finally:
            del self._underway[call]
            if (answered := self._clock()) - asked > (self._long_s if long_s is None else long_s):
                self._recent_until = answered + self._moment_s
