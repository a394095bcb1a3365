"""Outcomes on their way to the server, many in one exchange."""

from __future__ import annotations

import asyncio
import logging

from orchestration_queue.errors import OrchestrationQueueError, ServerError, TransportError
from orchestration_queue.protocol.call import Call
from orchestration_queue.server import AsyncConnection

__all__ = ["Settler"]

log = logging.getLogger("orchestration_queue.qless")

_BATCH = 256
_PAUSE_S = 0.2


class Settler:
    """Sends outcomes. Outages delay them; a job whose lock is lost by then runs again elsewhere."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._pending: list[tuple[str, Call]] = []
        self._task: asyncio.Task[None] | None = None

    def settle(self, jid: str, call: Call) -> None:
        """Send an outcome soon."""
        self._pending.append((jid, call))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send())

    async def flush(self) -> None:
        """Wait until all outcomes are sent."""
        if self._task is not None:
            await self._task

    async def _send(self) -> None:
        # After the loop's other callbacks, so that what ends together is sent together.
        await asyncio.sleep(0)
        while self._pending:
            batch = self._pending[:_BATCH]
            try:
                replies = await self._connection.pipeline([call for _, call in batch])
            except TransportError as error:
                log.warning("%d outcomes wait for the server: %s", len(batch), error)
                await asyncio.sleep(_PAUSE_S)
                continue
            except OrchestrationQueueError as error:
                replies = [error] * len(batch)
            del self._pending[: len(batch)]
            for (jid, _), reply in zip(batch, replies, strict=True):
                # Sent twice after an outage, it is refused the second time.
                if isinstance(reply, ServerError):
                    log.warning("The outcome of job %s was refused: %s", jid, reply)
