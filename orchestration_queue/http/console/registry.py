"""Queues and their workers, found by one walk over all keys for all pages, every few seconds at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping

from orchestration_queue.client import AsyncQueue, WorkerInfo
from orchestration_queue.http.console.recent import Recent
from orchestration_queue.http.service import Service
from orchestration_queue.protocol.operations import keyspace, worker_registry
from orchestration_queue.server import AsyncConnection

__all__ = ["PATIENCE_S", "Registry"]

PATIENCE_S = 0.1
"""How long a page waits for what takes a walk over all keys."""
_KEPT_S = 5.0
_STALE_S = 30.0
_COUNTED_S = 60.0


class Registry:
    """The queues of a server and their workers.

    Args:
        service: What they are read through.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._recent = Recent(_KEPT_S, at_once=_STALE_S)
        self._kinds = Recent(_COUNTED_S, at_once=_STALE_S)

    async def queues(self) -> Mapping[str, list[str]]:
        """Return the ids of the workers of each queue by the queue's name, as they were a few seconds ago."""
        return self._allowed(await self._recent.get("", self._walk))

    async def queues_soon(self) -> Mapping[str, list[str]] | None:
        """Return the same; None while the first walk is under way."""
        found = await self._recent.within(PATIENCE_S, "", self._walk)
        return None if found is None else self._allowed(found)

    async def workers(self, queue: AsyncQueue) -> list[WorkerInfo]:
        """Return a queue's workers."""
        return await self._read(queue, await self.queues())

    async def workers_soon(self, queue: AsyncQueue) -> list[WorkerInfo] | None:
        """Return a queue's workers; None while the first walk is under way."""
        found = await self.queues_soon()
        return None if found is None else await self._read(queue, found)

    async def kinds_soon(self) -> Mapping[str, int] | None:
        """Return the number of keys of each kind, about a minute old; None until the first count has ended."""
        return await self._kinds.within(PATIENCE_S, "", self._count)

    async def aclose(self) -> None:
        """Stop the walks."""
        await self._recent.aclose()
        await self._kinds.aclose()

    def _allowed(self, found: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
        allowed = self._service.allowed
        return {name: ids for name, ids in found.items() if allowed is None or name in allowed}

    async def _read(self, queue: AsyncQueue, found: Mapping[str, list[str]]) -> list[WorkerInfo]:
        ids = found.get(queue.name, [])
        return await self._service.connection.follow(worker_registry.workers_with_jobs(queue.keys, ids)) if ids else []

    async def _walk(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        async for one in self._servers():
            for name, ids in (await one.follow(keyspace.queues(self._service.prefix))).items():
                found.setdefault(name, []).extend(ids)
        return dict(sorted(found.items()))

    async def _count(self) -> Mapping[str, int]:
        found: Counter[str] = Counter()
        async for one in self._servers():
            found.update(await one.follow(keyspace.kinds(self._service.prefix)))
        return dict(found.most_common())

    async def _servers(self) -> AsyncIterator[AsyncConnection]:
        for primary in await self._service.connection.primaries():
            async with await AsyncConnection.open(primary, libraries=()) as one:
                yield one
