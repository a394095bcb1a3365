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
_LEASE_S = 5
"""A message that no client got before all had left goes to the next one after this time."""


class Client:
    """One listener.

    Args:
        subjects: Which messages it wants.
    """

    def __init__(self, subjects: SubjectFilter) -> None:
        self.subjects = subjects
        self._item: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1)
        self._sent = asyncio.Event()
        self.has_left = asyncio.Event()

    async def next(self) -> dict[str, Any]:
        """Return the next message, once there is one."""
        return await self._item.get()

    def sent(self) -> None:
        """Note that the last message was written."""
        self._sent.set()

    async def deliver(self, item: dict[str, Any]) -> bool:
        """Pass on a message; returns once it was written, or False when the client left before."""
        self._sent.clear()
        await self._item.put(item)
        waits = [asyncio.ensure_future(event.wait()) for event in (self._sent, self.has_left)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._sent.is_set()


class _Reader:
    """Reads one subscription while it has clients. A message is done when a client that wants it was sent it."""

    def __init__(self, url: ServerUrl, prefix: str, name: str, subscription: str) -> None:
        self.clients: list[Client] = []
        options = {"concurrency": 1, "drain": _DRAIN_S, "lease": _LEASE_S, "run_schedulers": False}
        self.worker = BroadcastWorker(
            name, self._handle, subscription=subscription, url=url, prefix=prefix, options=options
        )
        self.task = asyncio.create_task(self.worker.run())

    async def _handle(self, job: AsyncActiveJob) -> None:
        at = job.record.added_at
        item = {"data": job.data, "id": job.id, "subject": job.name, "timestamp": 0 if at is None else epoch_ms(at)}
        while True:
            wanting = [client for client in self.clients if client.subjects.matches(job.name)]
            if self.clients and not wanting:
                return
            sent = await asyncio.gather(*(client.deliver(item) for client in wanting))
            if any(sent):
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
            client.has_left.set()
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
