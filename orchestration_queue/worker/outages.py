"""Outages of the server: a worker detects them, and waits until they are over.

Meanwhile no lease can be renewed, so healthy workers' jobs look stalled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError, ServerError, TransportError
from orchestration_queue.server import refusals
from orchestration_queue.server.clock import Pauses

__all__ = ["Outages", "is_passing", "until_available"]

log = get_logger("orchestration_queue.worker")

T = TypeVar("T")


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


def is_passing(error: OrchestrationQueueError) -> bool:
    """Return whether the same call may succeed later, without a change to the worker."""
    if isinstance(error, ServerError):
        return refusals.is_passing(error.code)
    return isinstance(error, TransportError)


async def until_available(attempt: Callable[[], Awaitable[T]], stopping: asyncio.Event, what: str) -> T | None:
    """Retry until the server is available; return None if ``stopping`` was set first.

    Raises:
        OrchestrationQueueError: An attempt failed for a reason that is not temporary.
    """
    pauses = Pauses()
    has_failed = False
    while not stopping.is_set():
        try:
            result = await attempt()
        except OrchestrationQueueError as error:
            if not is_passing(error):
                raise
            log.warning("%s waits for its server, and tries again: %s", what, error)
            has_failed = True
        else:
            if has_failed:
                log.info("%s reached its server after %.1f s", what, pauses.waited_s)
            return result
        try:
            await asyncio.wait_for(stopping.wait(), pauses.next_s())
        except TimeoutError:
            continue
    return None
