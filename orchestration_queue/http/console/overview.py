"""The first page: all queues, read in two exchanges however many are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.client import JobCounts, Metrics
from orchestration_queue.http.console.findings import FindingPages
from orchestration_queue.http.console.views import Views
from orchestration_queue.http.messages import Raw, Request
from orchestration_queue.http.service import Service
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import queue_state, worker_registry
from orchestration_queue.protocol.operations.conversation import Conversation, all_good, together
from orchestration_queue.protocol.record import when
from orchestration_queue.states import JobState

__all__ = ["MOST_QUEUES", "STATES", "OverviewPage", "minutes_of"]

STATES = ("waiting", "active", "delayed", "suspended", "failed", "completed")
MOST_QUEUES = 100
_MINUTES = 60
_ENDED = (JobState.COMPLETED, JobState.FAILED)
_PATIENCE_S = 0.1
"""How long the page waits for the queues' names: finding them walks all keys of the server."""


@dataclass(frozen=True, slots=True)
class _Row:
    """What the page shows of a queue."""

    name: str
    counts: JobCounts
    paused: bool
    oldest: datetime | None
    done: Sequence[int]
    failed: Sequence[int]


class OverviewPage:
    """All queues with their depths and rates, and what is wrong.

    Args:
        service: What it is read through.
        views: How it is shown.
        names: Finds the queues' names.
        doctor: Knows what is wrong.
    """

    def __init__(
        self, service: Service, views: Views, names: Callable[[], Awaitable[list[str]]], doctor: FindingPages
    ) -> None:
        self._service, self._views, self._names, self._doctor = service, views, names, doctor

    async def show(self, request: Request) -> Raw:
        """Show all queues with their depths and rates."""
        sought = request.query.get("q", "").lower()
        found = asyncio.ensure_future(self._names())
        done, _ = await asyncio.wait([found], timeout=_PATIENCE_S)
        if not done:
            found.cancel()  # the walk itself goes on
        names = [name for name in found.result() if sought in name.lower()] if done else []
        rows = await self._rows(names[:MOST_QUEUES])
        totals = {state: sum(getattr(row.counts, state) for row in rows) for state in STATES}
        return self._views.page(
            "overview.html", title="Overview", rows=rows, totals=totals, count=len(names), shown=len(rows), q=sought,
            is_known=bool(done), problems=self._doctor.problems, checked_at=self._doctor.at,
        )  # fmt: skip

    async def _rows(self, names: Sequence[str]) -> list[_Row]:
        end = datetime.now(UTC)
        end_ms = int(end.timestamp() * 1000)
        start_ms = end_ms - (_MINUTES - 1) * 60_000
        steps: list[Conversation[Any]] = []
        for name in names:
            keys = QueueKeys(name, self._service.prefix)
            steps += [queue_state.counts(keys), _is_paused(keys), queue_state.oldest_ready_ms(keys)]
            start_ms = end_ms - (_MINUTES - 1) * 60_000
            steps += [
                queue_state.metrics(keys, kind, start_ms, end_ms) for kind in (JobState.COMPLETED, JobState.FAILED)
            ]
        found = iter(await self._service.connection.follow(together(steps)))
        rows = []
        for name, counts, paused, oldest, done, failed in zip(names, *[found] * 5, strict=False):
            minutes = [minutes_of(each, end, _MINUTES, 1) for each in (done, failed)]
            rows.append(_Row(name, counts, paused, when(oldest), *minutes))
        return rows


def _is_paused(keys: QueueKeys) -> Conversation[bool]:
    operation = worker_registry.is_paused(keys)
    (reply,) = all_good((yield [operation.call]))
    return operation.read(reply)


def minutes_of(found: Metrics, end: datetime, minutes: int, bucket: int) -> list[int]:
    """Return how many jobs ended in each of the last minutes, ``bucket`` of them in one number."""
    values = [0] * (minutes // bucket)
    last = int(end.timestamp()) // 60
    for minute in found.minutes:
        place = (minutes - 1 - (last - int(minute.at.timestamp()) // 60)) // bucket
        if 0 <= place < len(values):
            values[place] += minute.count
    return values
