"""Connections that the workers of shared slots use together."""

from __future__ import annotations

import asyncio
from typing import TypeAlias
from weakref import WeakKeyDictionary

from orchestration_queue.server import AsyncConnection, Connection, ServerUrl
from orchestration_queue.worker.signal_reader import SignalReader
from orchestration_queue.worker.slots import SharedSlots

__all__ = ["WorkerConnections"]

_Url: TypeAlias = str | ServerUrl | None

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
        self._opening = asyncio.Lock()
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
        async with self._opening:
            if self._calls is None:
                self._calls = await AsyncConnection.open(self._url)
                self.renewals = Connection(self._calls.url)
                self._signals, self._streams = SignalReader(self._calls), set()
            self._users += 1
            return self._calls

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
        if self._users or self._calls is None:
            return
        calls, self._calls = self._calls, None
        self.renewals.close()
        await calls.aclose()
