"""What the console keeps between requests: cached values, the registry of queues and workers, and rates.

For any number of open pages, each value is read once in a few seconds. Values that take long are read less often: by
default, reading takes at most a twentieth of the time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestration_queue.client import AsyncQueue, WorkerInfo
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.http.service import Service
from orchestration_queue.protocol.operations import keyspace, worker_registry
from orchestration_queue.server import AsyncConnection

__all__ = ["PATIENCE_S", "Rate", "Rates", "Recent", "Registry", "or_none"]

T = TypeVar("T")
# A reading is repeated no sooner than after 20 times its duration: it takes a twentieth of the time at most.
_REST = 20


class Recent:
    """Cached values by key.

    Args:
        seconds: Maximum age of a value before it is read again.
        at_once: How much longer an old value is returned while it is read again in the background.
        rest: A value is fresh for at least this many times as long as reading it took.
        most: Maximum number of values.
    """

    def __init__(self, seconds: float, *, at_once: float = 0, rest: float = _REST, most: int = 1024) -> None:
        self._seconds, self._at_once, self._rest, self._most = seconds, at_once, rest, most
        self._values: dict[object, tuple[float, float, Any]] = {}
        self._readings: dict[object, asyncio.Task[Any]] = {}

    async def get(self, key: object, read: Callable[[], Awaitable[T]]) -> T:
        """Return the value of a key, read if necessary."""
        known = self._values.get(key)
        age = math.inf if known is None else time.monotonic() - known[0]
        fresh_s = self._seconds if known is None else max(self._seconds, self._rest * known[1])
        if age > fresh_s and key not in self._readings:
            self._readings[key] = reading = asyncio.create_task(self._read(key, read))
            # Retrieves the exception; asyncio logs it if no request waits for the reading.
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        if known is None or age > fresh_s + self._at_once:
            # Shielded: other requests wait for the same reading.
            found: T = await asyncio.shield(self._readings[key])
        else:
            found = known[2]
        return found

    async def within(self, seconds: float, key: object, read: Callable[[], Awaitable[T]]) -> T | None:
        """Return the value of a key; None if reading takes longer, and then continues in the background."""
        found = asyncio.ensure_future(self.get(key, read))
        done, _ = await asyncio.wait([found], timeout=seconds)
        if not done:
            # Ends only the waiting: the reading is shielded.
            found.cancel()
        return found.result() if done else None

    async def aclose(self) -> None:
        """Stop reading."""
        readings = list(self._readings.values())
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)

    async def _read(self, key: object, read: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        try:
            value = await read()
            # Inserted again at the end, so that the oldest value comes first and is dropped first.
            self._values.pop(key, None)
            while len(self._values) >= self._most:
                del self._values[next(iter(self._values))]
            now = time.monotonic()
            self._values[key] = (now, now - began, value)
        finally:
            del self._readings[key]
        return value


async def or_none(reading: Awaitable[T]) -> T | None:
    """Return the result of a read; None if it fails."""
    try:
        return await reading
    except OrchestrationQueueError:
        return None


PATIENCE_S = 0.1
"""How long a page waits for a scan of all keys."""
_KEPT_S = 5.0
_STALE_S = 30.0
_COUNTED_S = 60.0


class Registry:
    """The queues of a server and their workers.

    Args:
        service: The app's service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._recent = Recent(_KEPT_S, at_once=_STALE_S)
        self._kinds = Recent(_COUNTED_S, at_once=_STALE_S)

    async def queues(self) -> Mapping[str, list[str]]:
        """Return the ids of the workers of each queue by the queue's name, as they were a few seconds ago."""
        return self._select_allowed(await self._recent.get("", self._walk))

    async def queues_soon(self) -> Mapping[str, list[str]] | None:
        """Return the same as :meth:`queues`; None during the first walk."""
        found = await self._recent.within(PATIENCE_S, "", self._walk)
        return None if found is None else self._select_allowed(found)

    async def workers(self, queue: AsyncQueue) -> list[WorkerInfo]:
        """Return a queue's workers."""
        return await self._read(queue, await self.queues())

    async def workers_soon(self, queue: AsyncQueue) -> list[WorkerInfo] | None:
        """Return a queue's workers; None during the first walk."""
        found = await self.queues_soon()
        return None if found is None else await self._read(queue, found)

    async def kinds_soon(self) -> Mapping[str, int] | None:
        """Return the number of keys of each kind, about a minute old; None during the first count."""
        return await self._kinds.within(PATIENCE_S, "", self._count)

    async def aclose(self) -> None:
        """Stop the walks."""
        await self._recent.aclose()
        await self._kinds.aclose()

    def _select_allowed(self, found: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
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


_RECENT = 5
"""Minutes over which rates are averaged."""
_APART_S, _LEAST_S, _MOST_S = 10, 2, 600
_MOST_QUEUES = 1024


@dataclass(frozen=True, slots=True)
class Rate:
    """Jobs per minute, on average over the last minutes.

    Attributes:
        added: Jobs that were added; None until the queue was read twice.
        ended: Jobs that completed or failed; until then, in the last full minutes.
    """

    added: float | None
    ended: float


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    depth: int
    ended: int
    """Jobs that had ended within the current minute."""


class Rates:
    """Computes the rates of queues from successive reads.

    The server counts by minute the jobs that ended, not those that were added. The jobs added between two reads are
    those that ended, plus the growth of the queue.
    """

    def __init__(self) -> None:
        self._looks: dict[str, deque[_Look]] = {}

    def look(self, queue: str, now: float, depth: int, ended: Sequence[int]) -> Rate:
        """Record a read of a queue, and return its rates.

        Args:
            queue: The queue.
            now: Seconds since the epoch.
            depth: Number of its unfinished jobs.
            ended: Number of jobs that ended in each of at least the last ten minutes, the current one last.
        """
        looks = self._looks.pop(queue, deque())
        self._looks[queue] = looks
        if len(self._looks) > _MOST_QUEUES:
            del self._looks[next(iter(self._looks))]
        while looks and (now - looks[0].at > _MOST_S or (len(looks) > 1 and now - looks[1].at >= _RECENT * 60)):
            looks.popleft()
        # Without the last minute, which is not over.
        rate = Rate(None, sum(ended[-_RECENT - 1 : -1]) / _RECENT)
        if looks and (seconds := now - looks[0].at) >= _LEAST_S:
            first = looks[0]
            minutes = int(now // 60) - int(first.at // 60)
            left = sum(ended[len(ended) - 1 - minutes :]) - first.ended
            came = max(0, depth - first.depth + left)
            rate = Rate(came * 60 / seconds, max(0, left) * 60 / seconds)
        if not looks or now - looks[-1].at >= _APART_S:
            looks.append(_Look(now, depth, ended[-1]))
        return rate
