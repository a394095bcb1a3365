"""The first page: all queues, read in two exchanges."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from orchestration_queue.client import JobCounts
from orchestration_queue.http.console.cache import PATIENCE_S, Rate, Rates, Recent, Registry
from orchestration_queue.http.console.findings import FindingPages
from orchestration_queue.http.console.views import Views
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.service import Service
from orchestration_queue.http.v1.alerts import alerts_of
from orchestration_queue.protocol.alerts import Alert
from orchestration_queue.protocol.call import Conversation, all_good, together
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import queue_state, worker_registry
from orchestration_queue.protocol.record import when
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["MOST_QUEUES", "STATES", "OverviewPage", "depth", "ended_until", "minutes_of"]

STATES = ("waiting", "active", "delayed", "suspended", "failed", "completed")
MOST_QUEUES = 100
_HOUR, _DAY, _SLOT = 60, 1440, 30
"""Minutes of the charts, and of one of the day's bars."""
_FRESH = 3 * _SLOT
"""Minutes that each page reads again; earlier ones no longer change."""
# Together less than an hour: a day's reading must be complete up to the slots that each page reads again.
_KEPT_S, _STALE_S = 1800, 1500
_AT_ONCE = 4
_ENDED = (JobState.COMPLETED, JobState.FAILED)
_Day: TypeAlias = tuple[Mapping[int, int], Mapping[int, int]]
"""Numbers of completed and of failed jobs, by slot since the epoch."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A queue's row on the page."""

    name: str
    counts: JobCounts
    paused: bool
    oldest: datetime | None
    rate: Rate
    hour: Sequence[Sequence[int]]
    """Completed and failed jobs of each of the last 60 minutes."""
    day: Sequence[Sequence[int]]
    """Likewise of each half an hour of the last day."""
    workers: int


class OverviewPage:
    """The page of all queues with their depths and rates, and of problems.

    Args:
        service: The app's service.
        views: Renders the page.
        registry: Lists the queues.
        doctor: Has the problems of the last check.
        rates: Computes the rates of queues.
    """

    def __init__(self, service: Service, views: Views, registry: Registry, doctor: FindingPages, rates: Rates) -> None:
        self._service, self._views, self._registry, self._doctor = service, views, registry, doctor
        self._rates = rates
        self._reading = asyncio.Semaphore(_AT_ONCE)
        self._days = Recent(_KEPT_S, at_once=_STALE_S)

    async def aclose(self) -> None:
        """Stop background reads."""
        await self._days.aclose()

    async def show(self, request: Request) -> Raw:
        """Show all queues with their depths and rates."""
        self._doctor.check_soon()
        sought = request.query.get("q", "").lower()
        found = await self._registry.queues_soon()
        names = [name for name in found or () if sought in name.lower()]
        queues = {name: len(found[name]) for name in names[:MOST_QUEUES]} if found else {}
        rows, firing = await asyncio.gather(self._rows(queues), self._firing())
        totals = {state: sum(getattr(row.counts, state) for row in rows) for state in STATES}
        return self._views.page(
            "overview.html", title="Overview", rows=rows, totals=totals, count=len(names), shown=len(rows), q=sought,
            firing=firing, is_known=found is not None, problems=self._doctor.problems, checked_at=self._doctor.at,
            is_checking=self._doctor.is_checking, failure=self._doctor.failure,
        )  # fmt: skip

    async def _firing(self) -> list[Alert]:
        """Return the alert rules that fire; none where only some queues are served."""
        if self._service.allowed is not None:
            return []
        return [alert for alert in await alerts_of(self._service).list() if alert.state == "firing"]

    async def _rows(self, queues: Mapping[str, int]) -> list[_Row]:
        now = now_ms() / 1000
        minute = int(now) // 60
        steps: list[Conversation[Any]] = []
        for name in queues:
            keys = QueueKeys(name, self._service.prefix)
            steps += [queue_state.counts(keys), _is_paused(keys), queue_state.oldest_ready_ms(keys)]
            steps += ended_until(keys, minute, _FRESH)
        found = iter(await self._service.connection.follow(together(steps)))
        days = await self._days_soon(queues)
        rows = []
        for (name, workers), counts, paused, oldest, *ended in zip(queues.items(), *[found] * 5, strict=False):
            by_minute = [minutes_of(each, minute, _FRESH, 1) for each in ended]
            rate = self._rates.look(name, now, depth(counts), list(map(sum, zip(*by_minute, strict=True))))
            known = days.get(name, ({}, {}))
            day = [_chart(old, _by_slot(new), minute) for old, new in zip(known, ended, strict=True)]
            hour = [each[-_HOUR:] for each in by_minute]
            rows.append(_Row(name, counts, paused, when(oldest), rate, hour, day, workers))
        return rows

    async def _days_soon(self, queues: Iterable[str]) -> dict[str, _Day]:
        """Return the last day's finished jobs of the queues for which they are known soon."""
        readings = {name: asyncio.create_task(self._days.get(name, partial(self._day, name))) for name in queues}
        if readings:
            await asyncio.wait(readings.values(), timeout=PATIENCE_S)
        known = {name: reading.result() for name, reading in readings.items() if reading.done()}
        for reading in readings.values():
            # Ends only the waiting: readings are shielded.
            reading.cancel()
        return known

    async def _day(self, name: str) -> _Day:
        async with self._reading:
            steps = ended_until(QueueKeys(name, self._service.prefix), now_ms() // 60_000, _DAY)
            done, failed = await self._service.connection.follow(together(steps))
        return _by_slot(done), _by_slot(failed)


def depth(counts: JobCounts) -> int:
    """Return the number of unfinished jobs."""
    return counts.waiting + counts.active + counts.delayed + counts.suspended


def ended_until(keys: QueueKeys, minute: int, minutes: int) -> list[Conversation[dict[int, int]]]:
    """Return reads of the jobs that completed and of those that failed in the minutes up to one."""
    return [queue_state.ended_by_minute(keys, kind, minute - minutes + 1, minute) for kind in _ENDED]


def _by_slot(ended: Mapping[int, int]) -> dict[int, int]:
    slots: Counter[int] = Counter()
    for minute, count in ended.items():
        slots[minute // _SLOT] += count
    return slots


def _chart(day: Mapping[int, int], fresh: Mapping[int, int], minute: int) -> list[int]:
    last = minute // _SLOT
    begin = last - _FRESH // _SLOT + 1
    return [(fresh if slot >= begin else day).get(slot, 0) for slot in range(last - _DAY // _SLOT + 1, last + 1)]


def _is_paused(keys: QueueKeys) -> Conversation[bool]:
    operation = worker_registry.is_paused(keys)
    (reply,) = all_good((yield [operation.call]))
    return operation.read(reply)


def minutes_of(ended: Mapping[int, int], last: int, minutes: int, bucket: int) -> list[int]:
    """Return the number of jobs that ended in each bucket of minutes up to the last minute."""
    values = [0] * (minutes // bucket)
    for minute, count in ended.items():
        place = (minutes - 1 - (last - minute)) // bucket
        if 0 <= place < len(values):
            values[place] += count
    return values
