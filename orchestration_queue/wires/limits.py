"""Limits of other wires' workers: options that they refuse, and how many jobs they may take in a window."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic import model_validator

from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError, ServerError
from orchestration_queue.options import RateLimit, milliseconds
from orchestration_queue.options.base import Options
from orchestration_queue.protocol.call import Call
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["StartLimiter", "WireWorkerOptions"]

_POLL_S = 0.25
"""How soon to ask again for starts that another worker may have given back."""


class WireWorkerOptions(Options):
    """Refuses limits of :class:`~orchestration_queue.WorkerOptions` that another protocol can't enforce."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_tokens(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("token_limit") is not None:
            raise InvalidOptionError(
                f"{cls.__name__} has no `token_limit`, since jobs of this wire report no tokens; "
                "limit their starts with `rate_limit`."
            )
        return values


class StartLimiter:
    """Reserves starts before jobs are taken, so that a job that may not start yet waits in its queue.

    Windows follow each other from the epoch on, by the workers' clocks. While a full server refuses to count, each
    worker counts for itself.

    Args:
        limit: How many starts in each window.
        connection: Connection for calls.
        key: Where starts are counted; the window is appended.
    """

    def __init__(self, limit: RateLimit, connection: AsyncConnection, key: str) -> None:
        self._max = limit.max
        self._duration_ms = milliseconds(limit.duration)
        self._connection = connection
        self._key = f"{key}:{self._duration_ms}"
        self._window = 0
        self._own = 0

    async def reserve(self, wanted: int) -> int:
        """Return how many of the wanted jobs may start in this window. Give back those that do not."""
        window = now_ms() // self._duration_ms
        if window != self._window:
            self._window, self._own = window, 0
        wanted = min(wanted, self._max)
        try:
            counted = await self._count(wanted)
        except ServerError as error:
            if error.code != "OOM":
                raise
            counted = self._own + wanted
        granted = max(0, min(wanted, self._max - counted + wanted))
        self._own += wanted
        await self.give_back(wanted - granted)
        return granted

    async def give_back(self, count: int) -> None:
        """Return reserved starts that were not needed. In an outage they are lost, and come back with the window."""
        if count > 0:
            self._own -= count
            with suppress(OrchestrationQueueError):
                await self._count(-count)

    def left_s(self) -> float:
        """Return how long this window lasts."""
        return max(0, (self._window + 1) * self._duration_ms - now_ms()) / 1000

    def pause_s(self) -> float:
        """Return how long to wait before asking again when no start was granted."""
        return max(0.001, min(self.left_s(), _POLL_S))

    async def _count(self, change: int) -> int:
        key = f"{self._key}:{self._window}"
        # A late return may find the count expired and create it again, so it sets the expiry, too.
        calls = [Call("INCRBY", (key,), (change,)), Call("PEXPIRE", (key,), (2 * self._duration_ms,))]
        counted, _ = await self._connection.pipeline(calls, atomic=True)
        return int(counted)
