"""Ending a blocking read early, without losing what it may just have been given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.call import Call, integer
from orchestration_queue.server import AsyncConnection

__all__ = ["Waker"]

_SOON_S = 0.002
_MOMENT_S = 0.02


class Waker:
    """Has the server answer a wait at once.

    Args:
        calls: The connection that asks for it.
        waits: The connection that waits.
        near: A key on whose server both must be.
    """

    def __init__(self, calls: AsyncConnection, waits: AsyncConnection, near: str) -> None:
        self._calls = calls
        self._waits = waits
        self._near = near
        self._waiting_as: int | None = None
        self._is_name_doubted = False

    async def prepare(self) -> None:
        """Find out by which name the server can be asked to end the next wait."""
        if self._waiting_as is None or self._is_name_doubted:
            self._is_name_doubted = False
            who = Call("CLIENT", args=("ID",), near=self._near)
            self._waiting_as = integer(await self._waits.execute(who))

    def forget(self) -> None:
        """Ask for the name again, since the connection broke."""
        self._waiting_as = None

    async def wake(self) -> bool:
        """End a wait at the server early.

        Returns:
            False when no wait was ended: it may be over, or not have reached the server yet.
        """
        if self._waiting_as is None:
            return False
        unblock = Call("CLIENT", args=("UNBLOCK", self._waiting_as), near=self._near)
        if integer(await self._calls.execute(unblock)) == 1:
            return True
        # The wait may be on its way under this name, so it stays. Or the socket was replaced meanwhile, or in a cluster
        # the queue has moved: the next wait asks again.
        self._is_name_doubted = True
        return False

    async def wake_while(self, is_waiting: Callable[[], object]) -> None:
        """End a wait that may only be on its way to the server."""
        pause_s = _SOON_S
        with suppress(OrchestrationQueueError):
            while is_waiting() and not await self.wake():
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MOMENT_S)
