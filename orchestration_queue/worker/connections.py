"""Connections of workers: those that shared slots share, the reader of signals, and the early end of blocking reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias
from weakref import WeakKeyDictionary

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.call import Call, integer
from orchestration_queue.protocol.operations.worker_signals import WorkerSignal, read_signals
from orchestration_queue.server import AsyncConnection, Connection, ServerUrl
from orchestration_queue.worker.slots import SharedSlots

__all__ = ["SignalReader", "Waker", "WorkerConnections"]

_Url: TypeAlias = str | ServerUrl | None

_BLOCK_MS = 5_000
_SOON_S = 0.002
_MOMENT_S = 0.02

_shared: WeakKeyDictionary[SharedSlots, dict[tuple[asyncio.AbstractEventLoop, _Url], WorkerConnections]]
_shared = WeakKeyDictionary()


class WorkerConnections:
    """The connections of a worker, except for its blocking read for jobs. Workers that share slots share them, too.

    Args:
        url: The server; see :class:`AsyncConnection`.

    Attributes:
        renewals: Connection of the threads that renew leases.
    """

    renewals: Connection
    _signals: SignalReader
    _streams: set[str]
    """The queues' streams of signals that the shared reader reads."""

    def __init__(self, url: _Url) -> None:
        self._url = url
        self._calls: AsyncConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._users = 0

    @classmethod
    def of(cls, url: _Url, slots: SharedSlots | None) -> WorkerConnections:
        """Return the connections of the workers on this event loop that share these slots; new ones without slots."""
        if slots is None:
            return cls(url)
        return _shared.setdefault(slots, {}).setdefault((asyncio.get_running_loop(), url), cls(url))

    async def join(self) -> AsyncConnection:
        """Return the connection for calls; the first worker opens it.

        Raises:
            OrchestrationQueueError: See :meth:`AsyncConnection.open`.
        """
        self._users += 1
        try:
            while self._calls is None:
                if self._opening is None or self._opening.done():
                    self._opening = asyncio.create_task(self._open())
                opening = self._opening  # all wait for one attempt, so that a stopped worker waits for no others
                await asyncio.wait({opening})
                if not opening.cancelled():
                    opening.result()
        except BaseException:
            await self.leave()
            raise
        return self._calls

    async def _open(self) -> None:
        calls = await AsyncConnection.open(self._url)
        self.renewals = Connection(calls.url)
        self._signals, self._streams = SignalReader(calls), set()
        self._calls = calls

    def signals_of(self, stream: str, calls: AsyncConnection) -> SignalReader:
        """Return a reader for a queue's signals: the shared one, unless another worker reads the same stream with it.

        In a cluster, each queue has its own, because one read can't cover several slots.
        """
        if calls.is_cluster or stream in self._streams:
            return SignalReader(calls)
        self._streams.add(stream)
        return self._signals

    async def leave(self) -> None:
        """Close the connections if no other worker uses them."""
        self._users -= 1
        if self._users:
            return
        # Forget them before anything is awaited: another worker may join meanwhile.
        opening, self._opening = self._opening, None
        calls, self._calls = self._calls, None
        if calls is not None:
            self.renewals.close()
            await calls.aclose()
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)


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
            # wait() leaves the read running if this caller is cancelled; awaiting it would cancel it for all queues.
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
            # A queue may have left while the read was in progress.
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
