"""The subscriptions of broadcasts that clients listen to: one reader for each, whose messages go to all its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from orchestration_queue.protocol.subjects import SubjectFilter
from orchestration_queue.server import ServerUrl
from orchestration_queue.server.clock import epoch_ms
from orchestration_queue.worker import AsyncActiveJob, BroadcastWorker

__all__ = ["Client", "Subscriptions"]

_DRAIN_S = 5
_MOST_BEHIND = 1000
"""Messages that a slow client may be behind the fastest one of its subscription."""
_LEASE_S = 5
"""A message that no client got before all had left goes to the next one after this time."""


class Client:
    """One listener.

    Args:
        subjects: Which messages it wants.

    Attributes:
        is_dropped: Whether it was too slow: its stream ends, and it listens again if it wants to.
    """

    def __init__(self, subjects: SubjectFilter) -> None:
        self.subjects, self.is_dropped = subjects, False
        self._items: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[None]]] = asyncio.Queue(_MOST_BEHIND)
        self._unsent: set[asyncio.Future[None]] = set()
        self._last: asyncio.Future[None] | None = None

    async def next(self) -> dict[str, Any]:
        """Return the next message, once there is one."""
        item, self._last = await self._items.get()
        return item

    def sent(self) -> None:
        """Note that the last message was written."""
        if self._last is not None and not self._last.done():
            self._last.set_result(None)

    def offer(self, item: dict[str, Any]) -> asyncio.Future[None]:
        """Pass on a message; the future is done once it was written, and cancelled when the client left before."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._items.put_nowait((item, future))
        except asyncio.QueueFull:
            self.is_dropped = True
            self.leave()
            future.cancel()
            return future
        self._unsent.add(future)
        future.add_done_callback(self._unsent.discard)
        return future

    def leave(self) -> None:
        """Give back what was not written."""
        for future in list(self._unsent):
            future.cancel()


class _Reader:
    """Reads one subscription while it has clients. A message is done when a client that wants it was sent it."""

    def __init__(self, url: ServerUrl, prefix: str, name: str, subscription: str) -> None:
        self.clients: list[Client] = []
        options = {"concurrency": 1, "drain": _DRAIN_S, "lease": _LEASE_S, "stalled_interval": _LEASE_S}
        options["run_schedulers"] = False
        self.worker = BroadcastWorker(
            name, self._handle, subscription=subscription, url=url, prefix=prefix, options=options
        )
        self.task = asyncio.create_task(self.worker.run())

    async def _handle(self, job: AsyncActiveJob) -> None:
        at = job.record.added_at
        item = {"data": job.data, "id": job.id, "subject": job.name, "timestamp": 0 if at is None else epoch_ms(at)}
        while True:
            clients = [client for client in self.clients if not client.is_dropped]
            wanting = [client for client in clients if client.subjects.matches(job.name)]
            if clients and not wanting:
                return
            waits: set[asyncio.Future[None]] = {client.offer(item) for client in wanting}
            while waits:  # for one of them: a slow client delays no other
                done, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if not all(wait.cancelled() for wait in done):
                    return
            # The last client left before it got the message: keep it for the next one.
            await asyncio.sleep(0.05)

    async def aclose(self) -> None:
        # Killed, it settles nothing more: a message that no client got stays with the subscription.
        if self.clients or self.worker.running:
            self.worker.kill()
        else:
            self.worker.stop()
        await asyncio.wait([self.task])


class Subscriptions:
    """All that are listened to in this process.

    Args:
        prefix: First part of every key.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._readers: dict[tuple[str, str], _Reader] = {}
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def joined(self, url: ServerUrl, name: str, subscription: str, client: Client) -> AsyncIterator[None]:
        """Let a client receive messages within the context."""
        key = (name, subscription)
        async with self._lock:
            reader = self._readers.get(key)
            if reader is None:
                reader = self._readers[key] = _Reader(url, self._prefix, name, subscription)
            reader.clients.append(client)
        try:
            yield
        finally:
            client.leave()
            await asyncio.shield(self._leave(key, reader, client))

    async def _leave(self, key: tuple[str, str], reader: _Reader, client: Client) -> None:
        async with self._lock:
            reader.clients.remove(client)
            if not reader.clients and self._readers.get(key) is reader:
                del self._readers[key]
                await reader.aclose()

    async def aclose(self) -> None:
        """End all readers."""
        async with self._lock:
            readers, self._readers = list(self._readers.values()), {}
            await asyncio.gather(*(reader.aclose() for reader in readers))
