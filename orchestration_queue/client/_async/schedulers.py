"""A queue's repeatable jobs: set, look up, remove. Workers fire them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestration_queue.client._async.queue_client import AsyncQueueClient
from orchestration_queue.errors import InvalidNameError, SchedulerBusyError
from orchestration_queue.protocol.operations import scheduling
from orchestration_queue.schedules import JobTemplate, Schedule, SchedulerEntry
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncJobSchedulers"]

_LOCK_TRIES = 200
_LOCK_PAUSE_S = 0.025


class AsyncJobSchedulers(AsyncQueueClient):
    """The repeatable jobs of one queue.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The wire cannot carry the queue's name.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    async def upsert(self, name: str, schedule: Schedule, template: JobTemplate | None = None) -> SchedulerEntry:
        """Set a repeatable job. One that runs at the same times already goes on counting.

        Args:
            name: The scheduler's name, by which it is replaced and removed.
            schedule: When it makes jobs.
            template: What jobs it makes; default jobs of the scheduler's name, without data.

        Returns:
            The entry as stored; ``next_run`` says when it first fires.

        Raises:
            InvalidNameError: The name is empty, or no text.
            ScheduleError: The schedule never fires within its bounds.
            PayloadError: The template's data is not JSON, or too large.
            SchedulerBusyError: Another process held the lock for 5 s.
        """
        if not isinstance(name, str) or not name:
            raise InvalidNameError(f"A scheduler's name is text that tells it from others, and {name!r} is none.")
        template = template or JobTemplate()
        # What cannot be set is refused before anybody is made to wait.
        SchedulerEntry.initial(schedule, template, now_ms())
        async with self._locked():
            stored = await self._channel.look(scheduling.entry(self.keys, name))
            previous = SchedulerEntry.parse(stored) if stored is not None else None
            entry = SchedulerEntry.initial(schedule, template, now_ms(), previous)
            await self._channel.execute(scheduling.put(self.keys, name, entry.dump()))
        return entry

    async def get(self, name: str) -> SchedulerEntry | None:
        """The scheduler of that name; None when there is none, or when it cannot be read."""
        stored = await self._channel.look(scheduling.entry(self.keys, name))
        return SchedulerEntry.parse(stored) if stored is not None else None

    async def remove(self, name: str) -> bool:
        """Remove a scheduler; False when there was none. Jobs it has made stay.

        Raises:
            SchedulerBusyError: Another process held the lock for 5 s.
        """
        async with self._locked():
            return await self._channel.run(scheduling.drop(self.keys, name))

    async def list(self) -> dict[str, SchedulerEntry]:
        """All schedulers by name; those that cannot be read are left out."""
        stored = await self._channel.look(scheduling.entries(self.keys))
        entries = {name: SchedulerEntry.parse(text) for name, text in sorted(stored.items())}
        return {name: entry for name, entry in entries.items() if entry is not None}

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Hold the lock under which schedulers are edited and fired."""
        token = secrets.token_hex(8)
        began = time.monotonic()
        for _ in range(_LOCK_TRIES):
            if await self._channel.run(scheduling.try_lock(self.keys, token)):
                break
            await asyncio.sleep(_LOCK_PAUSE_S)
        else:
            raise SchedulerBusyError(self.name, time.monotonic() - began)
        try:
            yield
        finally:
            await self._channel.run(scheduling.unlock(self.keys, token))
