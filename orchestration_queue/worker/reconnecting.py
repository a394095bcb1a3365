"""Wait for an unreachable server: growing pauses, and which errors are temporary."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from orchestration_queue.errors import OrchestrationQueueError, ServerError, TransportError

__all__ = ["Pauses", "is_passing", "until_available"]

log = logging.getLogger("orchestration_queue.worker")

T = TypeVar("T")

_PASSING_CODES = frozenset(
    {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"}
)
"""Errors of a server that is full, starting, failing over or busy."""


class Pauses:
    """Growing pauses between attempts.

    Args:
        first_s: The first pause.
        longest_s: The maximum; each pause is twice the previous one until then.
    """

    def __init__(self, first_s: float = 0.05, longest_s: float = 2.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        """Return how long to wait before the next attempt."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Start again with the first pause."""
        self._next_s = self._first_s


def is_passing(error: OrchestrationQueueError) -> bool:
    """Return whether the same call may succeed later, without a change to the worker."""
    if isinstance(error, ServerError):
        return error.code in _PASSING_CODES
    return isinstance(error, TransportError)


async def until_available(attempt: Callable[[], Awaitable[T]], stopping: asyncio.Event, what: str) -> T | None:
    """Retry until the server is available; return None if ``stopping`` was set first.

    Raises:
        OrchestrationQueueError: An attempt failed for a reason that is not temporary.
    """
    pauses, since = Pauses(), time.monotonic()
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
                log.info("%s reached its server after %.1f s", what, time.monotonic() - since)
            return result
        try:
            await asyncio.wait_for(stopping.wait(), pauses.next_s())
        except TimeoutError:
            continue
    return None
