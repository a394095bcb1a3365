"""End a blocking read early, without losing jobs that its reply may contain."""

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
    """Makes the server answer a blocking read immediately.

    Args:
        calls: The connection that asks for it.
        waits: The connection that blocks.
        near: A key on whose server both must be.
    """

    def __init__(self, calls: AsyncConnection, waits: AsyncConnection, near: str) -> None:
        self._calls = calls
        self._waits = waits
        self._near = near
        self._waiting_as: int | None = None
        self._is_id_stale = False

    async def prepare(self) -> None:
        """Find out the client id by which the server can end the next blocking read."""
        if self._waiting_as is None or self._is_id_stale:
            self._is_id_stale = False
            who = Call("CLIENT", args=("ID",), near=self._near)
            self._waiting_as = integer(await self._waits.execute(who))

    def forget(self) -> None:
        """Ask for the id again, since the connection broke."""
        self._waiting_as = None

    async def wake(self) -> bool:
        """End a blocking read early.

        Returns:
            False if none was ended: it may be over, or not have reached the server yet.
        """
        if self._waiting_as is None:
            return False
        unblock = Call("CLIENT", args=("UNBLOCK", self._waiting_as), near=self._near)
        if integer(await self._calls.execute(unblock)) == 1:
            return True
        # The read may be on its way with this id, so the id stays. If the socket was replaced, or in a cluster the
        # queue has moved, the next read asks again.
        self._is_id_stale = True
        return False

    async def wake_while(self, is_waiting: Callable[[], object]) -> None:
        """End a blocking read that may still be on its way to the server."""
        pause_s = _SOON_S
        with suppress(OrchestrationQueueError):
            while is_waiting() and not await self.wake():
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MOMENT_S)
