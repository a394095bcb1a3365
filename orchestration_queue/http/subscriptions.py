"""Subscriptions of broadcasts: one reader for each, whose messages go to all its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from orchestration_queue.http.event_routes import message
from orchestration_queue.protocol.operations.broadcasts import SubjectFilter
from orchestration_queue.server import ServerUrl
from orchestration_queue.server.clock import epoch_ms
from orchestration_queue.worker import AsyncActiveJob, BroadcastWorker

__all__ = ["Listener", "Subscriptions"]

_DRAIN_S = 5
_MOST_KEPT = 4 * 2**20
"""Bytes of messages kept for a subscription's slow clients, and for those that reconnect."""
_OVERHEAD = 300
"""Bytes that a kept message takes besides its text."""
_MOST_LOGS = 16
"""Subscriptions without clients whose messages are kept."""
_LEASE_S = 5
"""A message that no client received before all had left goes to the next client after this time."""


@dataclass(slots=True, eq=False)
class _Message:
    id: str
    subject: str
    text: bytes
    is_taken: bool = False
    """Whether it was sent to a client."""


class _Log:
    """The last messages of a subscription. All its clients read them from here, each at its own pace."""

    def __init__(self) -> None:
        self._messages: dict[int, _Message] = {}
        self._size = 0
        self.first = self.end = 0
        self._changed = asyncio.Event()

    def append(self, new: _Message) -> int:
        """Append a message, drop the oldest ones above the size limit, and return its position."""
        place, self.end = self.end, self.end + 1
        self._messages[place] = new
        self._size += len(new.text) + _OVERHEAD
        while self._size > _MOST_KEPT and self.first < place:
            self.remove(self.first)
            self.first += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return place

    def remove(self, place: int) -> None:
        """Remove a message."""
        if gone := self._messages.pop(place, None):
            self._size -= len(gone.text) + _OVERHEAD

    def at(self, place: int) -> _Message | None:
        """Return the message at a position; None if it was removed."""
        return self._messages.get(place)

    async def wait(self) -> None:
        """Wait for the next message."""
        await self._changed.wait()

    def start(self) -> int:
        """Return where a new client begins: at the message that was not sent to any client yet, or at the end."""
        last = self._messages.get(self.end - 1)
        return self.end if last is None or last.is_taken else self.end - 1

    def after(self, message_id: str) -> int | None:
        """Return the position after a message; None if it is not kept."""
        return next((place + 1 for place, kept in reversed(self._messages.items()) if kept.id == message_id), None)


class Listener:
    """One client of a subscription.

    Args:
        reader: Reads the subscription.
        subjects: Filter for its messages.
        after: Id of the last message that it received before it reconnected; empty for none.

    Attributes:
        has_gap: Whether messages may be missing between that one and the next.
    """

    def __init__(self, reader: _Reader, subjects: SubjectFilter, after: str) -> None:
        self._reader, self.subjects = reader, subjects
        place = reader.log.after(after) if after else None
        self.has_gap = bool(after) and place is None
        self._place = reader.log.start() if place is None else place
        self._last: _Message | None = None

    async def next(self) -> bytes | None:
        """Wait for the next message and return it as an event; None if it was dropped because the client is too slow.

        The client's stream then ends, and it reconnects after the last message that it received.
        """
        log = self._reader.log
        while True:
            if self._place < log.first:
                return None
            while self._place < log.end:
                found = log.at(self._place)
                self._place += 1
                if found is not None and self.subjects.matches(found.subject):
                    self._last = found
                    return found.text
            await log.wait()

    def sent(self) -> None:
        """Record that the last message was written."""
        if self._last is not None and not self._last.is_taken:
            self._last.is_taken = True
            self._reader.changed.set()


class _Reader:
    """Reads one subscription while it has clients. A message is done once it was sent to a client that matches it."""

    def __init__(self, url: ServerUrl, prefix: str, name: str, subscription: str, log: _Log) -> None:
        self.clients: list[Listener] = []
        self.log = log
        self.changed = asyncio.Event()
        options = {"concurrency": 1, "drain": _DRAIN_S, "lease": _LEASE_S, "stalled_interval": _LEASE_S}
        options["run_schedulers"] = False
        self.worker = BroadcastWorker(
            name, self._handle, subscription=subscription, url=url, prefix=prefix, options=options
        )
        self.task = asyncio.create_task(self.worker.run())

    async def _handle(self, job: AsyncActiveJob) -> None:
        at = job.record.added_at
        item = {"data": job.data, "id": job.id, "subject": job.name, "timestamp": 0 if at is None else epoch_ms(at)}
        new = _Message(job.id, job.name, message(item, id=job.id, event="message"))
        place = self.log.append(new)
        try:
            # Wait until one client was sent it, so that a slow client delays no other, or until a next client joins.
            while not new.is_taken:
                self.changed.clear()
                if self.clients and not any(client.subjects.matches(job.name) for client in self.clients):
                    new.is_taken = True
                else:
                    await self.changed.wait()
        finally:
            if not new.is_taken:
                self.log.remove(place)

    def join(self, client: Listener) -> None:
        self.clients.append(client)
        self.changed.set()

    def leave(self, client: Listener) -> None:
        self.clients.remove(client)
        self.changed.set()

    async def aclose(self) -> None:
        # A killed worker settles nothing: a message that no client received stays with the subscription.
        if self.clients or self.worker.running:
            self.worker.kill()
        else:
            self.worker.stop()
        await asyncio.wait([self.task])


class Subscriptions:
    """The subscriptions with clients in this process.

    Args:
        prefix: First part of every key.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._readers: dict[tuple[str, str], _Reader] = {}
        self._logs: dict[tuple[str, str], _Log] = {}
        """Logs of subscriptions without clients, for clients that reconnect."""
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def joined(
        self, url: ServerUrl, name: str, subscription: str, subjects: SubjectFilter, after: str
    ) -> AsyncIterator[Listener]:
        """Let a client receive messages within the context.

        Args:
            url: The server.
            name: The broadcast.
            subscription: The subscription.
            subjects: Filter for the client's messages.
            after: Id of the last message that it received before; empty for none.
        """
        key = (name, subscription)
        async with self._lock:
            reader = self._readers.get(key)
            if reader is None:
                log = self._logs.pop(key, None) or _Log()
                reader = self._readers[key] = _Reader(url, self._prefix, name, subscription, log)
            client = Listener(reader, subjects, after)
            reader.join(client)
        try:
            yield client
        finally:
            # Shielded: a client must leave even if its request is cancelled again.
            await asyncio.shield(self._leave(key, reader, client))

    async def _leave(self, key: tuple[str, str], reader: _Reader, client: Listener) -> None:
        async with self._lock:
            reader.leave(client)
            if not reader.clients and self._readers.get(key) is reader:
                del self._readers[key]
                await reader.aclose()
                self._logs[key] = reader.log
                if len(self._logs) > _MOST_LOGS:
                    del self._logs[next(iter(self._logs))]

    async def aclose(self) -> None:
        """End all readers."""
        async with self._lock:
            readers, self._readers = list(self._readers.values()), {}
            await asyncio.gather(*(reader.aclose() for reader in readers))
