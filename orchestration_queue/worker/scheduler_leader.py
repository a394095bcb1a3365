"""Evaluates the queue's repeatable jobs: the worker that holds the lock does it, and a second one is harmless.

A run is written together with the entry that records it, and only while the lock is held. Its job id is derived from
the schedule's name and the due time, so that even two concurrent leaders add the job once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from orchestration_queue._logging import get_logger
from orchestration_queue.options import milliseconds
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import schedule_entries
from orchestration_queue.schedules import Awaited, SchedulerEntry, evaluate
from orchestration_queue.schedules.tick import CHECK_MS, GRACE_MS, NEVER_MS
from orchestration_queue.server import AsyncConnection

__all__ = ["SchedulerLeader"]

log = get_logger("orchestration_queue.worker")

_SHORTEST_LOCK_MS, _LONGEST_LOCK_MS = 1000, 5000
_LOCK_PAUSE_MS = 25
_LOOKS_PER_LOCK = 4
"""How many times to try a lock that another worker holds before it must have expired."""
_LOOKED_MS = 60_000
"""How often the index is compared with all entries, which other clients change without updating it."""
_ENTRIES_A_TICK = 100
_INDEXED_AT_ONCE = 1000


class SchedulerLeader:
    """One worker's part in evaluating repeatable jobs.

    Args:
        keys: The queue's keys.
        connection: Connection for calls.
        interval: The usual time between two ticks.
        now_ms: Returns the time, in epoch milliseconds.
    """

    def __init__(
        self, keys: QueueKeys, connection: AsyncConnection, interval: timedelta, now_ms: Callable[[], int]
    ) -> None:
        self._keys = keys
        self._connection = connection
        self._now_ms = now_ms
        self._lock_ms = min(_LONGEST_LOCK_MS, max(_SHORTEST_LOCK_MS, 2 * milliseconds(interval)))
        self._grace_ms = max(GRACE_MS, 2 * milliseconds(interval))

    async def tick(self, due_ms: int) -> int:
        """Run the schedules that are due.

        Costs nothing if none are; otherwise two exchanges, and more once a minute, to find changes of other clients.

        Args:
            due_ms: When the first entry must be checked, epoch ms, according to the queue's tick; -1 for never.

        Returns:
            When this worker must check again, epoch ms; -1 when the queue's next tick will say so.
        """
        if due_ms < 0 or due_ms > self._now_ms():
            return -1
        async with self._lock() as token:
            if token is None:
                # The lock's holder may have died: retry soon, even if the usual interval is longer.
                return self._now_ms() + self._lock_ms // _LOOKS_PER_LOCK
            found = await self._read_due()
            if has_indexed := found.needs_full_look:
                await self._index(token)
                found = await self._read_due()
            if not found.entries:
                return self._now_ms() if has_indexed else -1  # the index may have a due time now
            await self._fire(token, found)
        return self._now_ms()  # the server decides what is next, and whether there is more

    async def _read_due(self) -> schedule_entries.DueEntries:
        return await self._connection.run(schedule_entries.due_entries(self._keys, self._now_ms(), _ENTRIES_A_TICK))

    async def _index(self, token: str) -> None:
        """Compare the index with all entries, and correct it."""
        stored = await self._connection.run(schedule_entries.entries(self._keys))
        indexed = await self._connection.run(schedule_entries.index(self._keys))
        at_ms = self._now_ms()
        looks = {name: _first_check_ms(name, text, at_ms) for name, text in stored.items()}
        wrong = [
            oq1.EntryUpdate(name=name, entry="", look_ms=look_ms)
            for name, look_ms in looks.items()
            if not _is_indexed(look_ms, indexed.get(name), at_ms)
        ]
        wrong += [
            oq1.EntryUpdate(name=name, entry=schedule_entries.DROP, look_ms=0) for name in indexed.keys() - looks.keys()
        ]
        for first in range(0, len(wrong), _INDEXED_AT_ONCE):
            part = wrong[first : first + _INDEXED_AT_ONCE]
            await self._connection.run(schedule_entries.fire(self._keys, token, at_ms, (), part))
        # Last: an index that was corrected only in part is compared again.
        await self._connection.run(schedule_entries.fire(self._keys, token, at_ms, (), (), looked_ms=_LOOKED_MS))

    async def _fire(self, token: str, found: schedule_entries.DueEntries) -> None:
        """Decide what is due, and write the result."""
        at_ms = self._now_ms()
        awaited = {due.name: Awaited(due.fate, due.ended_ms) for due in found.entries}
        stored = {due.name: due.text for due in found.entries}
        plan = evaluate(stored, at_ms, awaited=awaited, grace_ms=self._grace_ms)
        replies = await self._connection.run(plan.write(self._keys, token, at_ms))
        if replies is None:
            log.warning("The schedules of queue %s were taken over by another worker meanwhile", self._keys.queue)
            return
        for run, reply in zip(plan.runs, replies, strict=True):
            if reply == run.job_id:
                log.info("Schedule %s of queue %s fired job %s", run.name, self._keys.queue, reply)
            else:
                log.info("Schedule %s of queue %s fired no job: %s", run.name, self._keys.queue, reply)

    async def finished(self, name: str) -> None:
        """Continue a schedule whose job has ended."""
        async with self._lock(self._lock_ms) as token:
            stored = await self._connection.run(schedule_entries.entry(self._keys, name)) if token else None
            entry = SchedulerEntry.parse(stored) if stored is not None else None
            if entry is None:
                return
            if entry.queued:
                await self._connection.execute(schedule_entries.put(self._keys, name, entry.dump()))  # due now
            elif entry.waits_for_completion:
                following = entry.completed(self._now_ms())
                await self._connection.execute(
                    schedule_entries.drop(self._keys, name).call
                    if following is None
                    else schedule_entries.put(self._keys, name, following.dump(), following.run_at(name))
                )

    @asynccontextmanager
    async def _lock(self, patience_ms: int = 0) -> AsyncIterator[str | None]:
        """Hold the schedulers' lock if it is free in time; yield its token, which is never reused."""
        token = secrets.token_hex(8)
        take = schedule_entries.try_lock(self._keys, token, self._lock_ms)
        while not (locked := await self._connection.run(take)) and patience_ms > 0:
            patience_ms -= _LOCK_PAUSE_MS
            await asyncio.sleep(_LOCK_PAUSE_MS / 1000)
        try:
            yield token if locked else None
        finally:
            if locked:
                await self._connection.run(schedule_entries.unlock(self._keys, token))


def _first_check_ms(name: str, text: str, at_ms: int) -> int:
    """Return when to check an entry about which nothing else is known."""
    entry = SchedulerEntry.parse(text)
    if entry is None or (entry.is_paused and not entry.members.get("nextRun")):
        return NEVER_MS
    waits = entry.queued or entry.waits_for_completion
    if entry.is_paused or waits or not (entry.timing.is_complete or entry.next_run):
        return at_ms
    return entry.run_at(name) or NEVER_MS


def _is_indexed(look_ms: int, indexed_ms: int | None, at_ms: int) -> bool:
    """Whether the index is correct: no entry is checked too late, or again and again."""
    return indexed_ms is not None and (indexed_ms == look_ms or (look_ms <= at_ms and indexed_ms <= at_ms + CHECK_MS))
