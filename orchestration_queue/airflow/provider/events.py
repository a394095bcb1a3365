"""Events of a queue for sensors and asset watchers: which ones, and the position up to which they were handled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.airflow.provider.checks import check_queue
from orchestration_queue.airflow.provider.connections import shared_connection
from orchestration_queue.airflow.provider.hook import QueueHook
from orchestration_queue.client import AsyncQueueEvents
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import suggestion
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_records
from orchestration_queue.protocol.operations.event_log import EVENT_TYPES, NEW_ONLY, STORED_READER_LEASE_S, Event
from orchestration_queue.server import AsyncConnection

__all__ = ["EventFeed", "EventFilter", "open_feed"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events of a queue to handle.

    Attributes:
        queue_name: The queue.
        events: Types of events, such as ``completed``.
        job_names: Names of jobs; empty for any.

    Raises:
        InvalidNameError: No queue can have this name.
        InvalidOptionError: These are no types of events, or no names.
    """

    queue_name: str
    events: tuple[str, ...]
    job_names: tuple[str, ...]

    @classmethod
    def of(cls, queue_name: str, events: Collection[str], job_names: Collection[str]) -> EventFilter:
        """Return the filter of these arguments."""
        types = _check_words(events, "events")
        for unknown in [word for word in types if word not in EVENT_TYPES]:
            hint = suggestion(unknown, EVENT_TYPES) or f"; use some of {', '.join(sorted(EVENT_TYPES))}."
            raise InvalidOptionError(f"Queues have no event {unknown!r}{hint}")
        if not types:
            raise InvalidOptionError("`events` must not be empty; pass `events=['completed']`, for instance.")
        return cls(check_queue(queue_name), types, _check_words(job_names, "job_names"))

    @property
    def digest(self) -> str:
        """A name for this filter."""
        whole = json.dumps([self.queue_name, sorted(self.events), sorted(self.job_names)])
        return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _check_words(words: Any, option: str) -> tuple[str, ...]:
    if isinstance(words, str) or not isinstance(words, Collection) or not all(isinstance(one, str) for one in words):
        raise InvalidOptionError(f"`{option}` must be a list of texts, got {words!r}; pass `{option}=['...']`.")
    return tuple(words)


class EventFeed:
    """Reads a queue's events, and stores in the queue up to which event they were handled.

    The queue keeps later events until they were handled, for two days after the last call.

    Args:
        connection: The server.
        prefix: First part of every key.
        wanted: Which events to return.
        reader: The name under which the position is stored.
    """

    def __init__(self, connection: AsyncConnection, prefix: str, wanted: EventFilter, reader: str) -> None:
        self._connection = connection
        self._keys = QueueKeys(wanted.queue_name, prefix)
        self._wanted = wanted
        self._reader = reader
        self._events: AsyncQueueEvents | None = None
        self.position = ""

    async def start(self) -> None:
        """Continue after the stored position; without one, with the events from now on."""
        stored = await self._connection.look(event_log.readers(self._keys))
        await self.store(stored.get(self._reader, NEW_ONLY))

    async def store(self, position: str) -> None:
        """Store that all events up to a position were handled."""
        call = event_log.register_reader(self._keys, self._reader, position, STORED_READER_LEASE_S)
        self.position = await self._connection.look(call)

    async def end(self) -> None:
        """Let the queue forget the position, and drop the events."""
        call = event_log.register_reader(self._keys, self._reader, NEW_ONLY, 1)
        await self._connection.look(call)

    async def read(self, wait_s: float) -> tuple[str, list[dict[str, Any]]]:
        """Return the position after the next events, and those that are wanted; wait up to ``wait_s`` for the first."""
        if self._events is None:
            self._events = AsyncQueueEvents(
                self._keys.queue, connection=self._connection, prefix=self._keys.prefix, after=self.position
            )
        page = await self._events.read(wait_s)
        for gap in [event for event in page if event.is_gap]:
            _log.warning(
                "Events of queue %r from %s to %s were dropped before they were read",
                self._keys.queue,
                gap.id,
                gap.fields["oldest"],
            )
        return (page[-1].id if page else self.position), await self._select(page)

    async def _select(self, page: Sequence[Event]) -> list[dict[str, Any]]:
        matching = [event for event in page if event.type in self._wanted.events]
        if not matching:
            return []
        jobs = [(self._keys, event.job_id) for event in matching]
        records = await self._connection.follow(job_records.jobs(jobs, ("name",)))
        named = [
            (event, None if record is None else record.name) for event, record in zip(matching, records, strict=True)
        ]
        names = self._wanted.job_names
        return [self._describe(event, name) for event, name in named if not names or name in names]

    def _describe(self, event: Event, job_name: str | None) -> dict[str, Any]:
        return {
            "event_id": event.id,
            "type": event.type,
            "at": event.at.isoformat(),
            "queue_name": self._keys.queue,
            "job_id": event.job_id,
            "job_name": job_name,
            "result": event.result,
            "failed_reason": event.fields.get("failedReason"),
        }

    async def aclose(self) -> None:
        """Close the connection on which events are read."""
        if self._events is not None:
            await self._events.aclose()


@asynccontextmanager
async def open_feed(hook: QueueHook, wanted: EventFilter, reader: str) -> AsyncIterator[EventFeed]:
    """Open a feed for the duration of the block, from its stored position on."""
    server = await hook.aread_server()
    async with shared_connection(server.url) as connection:
        feed = EventFeed(connection, server.prefix, wanted, reader)
        try:
            await feed.start()
            yield feed
        finally:
            await feed.aclose()
