"""The first page: all queues, read in two exchanges however many are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestration_queue.client import JobCounts, Metrics
from orchestration_queue.http.console.findings import FindingPages
from orchestration_queue.http.console.registry import Registry
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
_RECENT = 5
_ENDED = (JobState.COMPLETED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class _Row:
    """What the page shows of a queue."""

    name: str
    counts: JobCounts
    paused: bool
    oldest: datetime | None
    done: Sequence[int]
    failed: Sequence[int]
    workers: int

    @property
    def per_minute(self) -> float:
        """How many jobs ended in each of the last full minutes, on average."""
        recent = (*self.done[-_RECENT - 1 : -1], *self.failed[-_RECENT - 1 : -1])
        return sum(recent) / _RECENT


class OverviewPage:
    """All queues with their depths and rates, and what is wrong.

    Args:
        service: What it is read through.
        views: How it is shown.
        registry: Knows the queues.
        doctor: Knows what is wrong.
    """

    def __init__(self, service: Service, views: Views, registry: Registry, doctor: FindingPages) -> None:
        self._service, self._views, self._registry, self._doctor = service, views, registry, doctor

    async def show(self, request: Request) -> Raw:
        """Show all queues with their depths and rates."""
        sought = request.query.get("q", "").lower()
        found = await self._registry.queues_soon()
        names = [name for name in found or () if sought in name.lower()]
        rows = await self._rows({name: len(found[name]) for name in names[:MOST_QUEUES]} if found else {})
        totals = {state: sum(getattr(row.counts, state) for row in rows) for state in STATES}
        return self._views.page(
            "overview.html", title="Overview", rows=rows, totals=totals, count=len(names), shown=len(rows), q=sought,
            is_known=found is not None, problems=self._doctor.problems, checked_at=self._doctor.at,
        )  # fmt: skip

    async def _rows(self, queues: Mapping[str, int]) -> list[_Row]:
        end = datetime.now(UTC)
        end_ms = int(end.timestamp() * 1000)
        start_ms = end_ms - (_MINUTES - 1) * 60_000
        steps: list[Conversation[Any]] = []
        for name in queues:
            keys = QueueKeys(name, self._service.prefix)
            steps += [queue_state.counts(keys), _is_paused(keys), queue_state.oldest_ready_ms(keys)]
            start_ms = end_ms - (_MINUTES - 1) * 60_000
            steps += [
                queue_state.metrics(keys, kind, start_ms, end_ms) for kind in (JobState.COMPLETED, JobState.FAILED)
            ]
        found = iter(await self._service.connection.follow(together(steps)))
        rows = []
        for (name, workers), counts, paused, oldest, done, failed in zip(queues.items(), *[found] * 5, strict=False):
            ended, lost = (minutes_of(each, end, _MINUTES, 1) for each in (done, failed))
            rows.append(_Row(name, counts, paused, when(oldest), ended, lost, workers))
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
