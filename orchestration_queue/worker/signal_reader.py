"""Reads the signals to the workers of one or more queues."""

from __future__ import annotations

import asyncio

from orchestration_queue.protocol.operations.worker_signals import WorkerSignal, read_signals
from orchestration_queue.server import AsyncConnection

__all__ = ["SignalReader"]

_BLOCK_MS = 5_000


class SignalReader:
    """Waits for signals on one connection, for any number of queues. In a cluster, these must be in one slot.

    Args:
        calls: A connection to the server, of which the reader makes its own duplicate.
    """

    def __init__(self, calls: AsyncConnection) -> None:
        self._calls = calls
        self._connection: AsyncConnection | None = None
        self._last: dict[str, str] = {}
        """For each queue's stream, the last signal that was read."""
        self._unread: dict[str, list[WorkerSignal]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def read(self, stream: str, after: str) -> list[WorkerSignal]:
        """Wait for signals to one queue's workers.

        Args:
            stream: The queue's stream of signals, which one worker at a time reads here.
            after: The last signal before the first to read. Later calls continue where the previous one ended.

        Raises:
            TransportError: The server was unreachable.
            ServerError: The server refused to read.
        """
        if stream not in self._last:
            self._last[stream] = after
            if self._reading is not None:
                self._reading.cancel()  # the next read includes this stream
        while not (signals := self._unread.pop(stream, None)):
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
            reading = self._reading
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.result()
        return signals

    async def _read(self) -> None:
        """Read once, for all queues."""
        if self._connection is None:
            self._connection = await self._calls.duplicate()
        found = await self._connection.run(read_signals(self._last, _BLOCK_MS), repeatable=True)
        for stream, signals in found.items():
            if stream in self._last:
                self._last[stream] = signals[-1].id
                self._unread.setdefault(stream, []).extend(signals)

    async def leave_old_primary(self) -> None:
        """End the read if sentinels are replacing the primary."""
        if self._connection is not None:
            await self._connection.leave_old_primary()

    async def leave(self, stream: str) -> None:
        """Stop reading a queue's signals; after the last one, close the connection."""
        self._last.pop(stream, None)
        self._unread.pop(stream, None)
        if self._last:
            return
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if (connection := self._connection) is not None:
            self._connection = None
            await connection.aclose()
