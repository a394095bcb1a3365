"""Triggers that fire with a queue's events: for sensors the first one, for assets each one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Hashable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from orchestration_queue.airflow.provider.checks import check_text
from orchestration_queue.airflow.provider.events import EventFeed, EventFilter, open_feed
from orchestration_queue.airflow.provider.hook import DEFAULT_CONNECTION, QueueHook
from orchestration_queue.airflow.provider.outcomes import describe_error, describe_result
from orchestration_queue.airflow.provider.triggers import hold_event, pause_for
from orchestration_queue.errors import OrchestrationQueueError, ServerError, TransportError

__all__ = ["FirstEventTrigger", "QueueEventTrigger", "find_event"]

_WAIT_S = 20.0
"""How long one read waits; the position is stored after each."""


async def find_event(feed: EventFeed, wait_s: float) -> dict[str, Any] | None:
    """Return the next wanted event; None after a wait without one. Stores that events before it were handled."""
    position, found = await feed.read(wait_s)
    if found:
        return found[0]
    await feed.store(position)
    return None


class FirstEventTrigger(BaseTrigger):
    """Fires with the first wanted event after the stored position of a sensor, however often it starts.

    Args:
        queue_name: The queue.
        events: Types of events.
        job_names: Names of jobs; empty for any.
        reader: The name under which the sensor stored its position.
        queue_conn_id: The connection's id.
        not_before: When it fires at the earliest, in seconds since 1970.
    """

    def __init__(
        self,
        queue_name: str,
        events: Collection[str],
        job_names: Collection[str],
        reader: str,
        queue_conn_id: str = DEFAULT_CONNECTION,
        not_before: float = 0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wanted = EventFilter.of(queue_name, events, job_names)
        self.reader = reader
        self.queue_conn_id = queue_conn_id
        self.not_before = not_before

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        arguments = {**_arguments(self.wanted, self.queue_conn_id), "reader": self.reader}
        arguments["not_before"] = self.not_before
        return f"{__name__}.{type(self).__name__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the event when it has happened."""
        hook = QueueHook(self.queue_conn_id)
        found = None
        while found is None:
            try:
                async with open_feed(hook, self.wanted, self.reader) as feed:
                    while found is None:
                        found = await find_event(feed, _WAIT_S)
            except TransportError as error:
                await pause_for(error)
            except OrchestrationQueueError as error:
                await hold_event(self.not_before)
                yield TriggerEvent(describe_error(error))
                return
        await hold_event(self.not_before)
        yield TriggerEvent(describe_result(found))

    async def on_kill(self) -> None:
        """Let the queue forget the sensor's position, since a user has ended the task."""
        async with open_feed(QueueHook(self.queue_conn_id), self.wanted, self.reader) as feed:
            await feed.end()


class QueueEventTrigger(BaseEventTrigger):
    """Updates an asset with each wanted event of a queue: the trigger of an asset's watcher.

    The queue stores up to which event Airflow has recorded them, and keeps later ones for two days. So a triggerer that
    stops or dies misses none. One that dies between recording an event and storing that, within a second or two,
    records it again; both have the same ``event_id``. It begins with the events after its first start.

    Args:
        queue_name: The queue.
        events: Types of events: ``completed``, ``failed``, ``added`` and others of the queue.
        job_names: Names of jobs; empty for any. Jobs that are removed as soon as they finish have no name.
        queue_conn_id: The connection's id.
        reader: A name for this Airflow; several that watch one queue need different ones.

    Raises:
        InvalidNameError: No queue can have this name.
        InvalidOptionError: These are no types of events, or no names.

    Example:
        ::

            loaded = Asset("loaded", watchers=[AssetWatcher("loads", QueueEventTrigger("data", job_names=["load"]))])
    """

    def __init__(
        self,
        queue_name: str,
        events: Collection[str] = ("completed",),
        job_names: Collection[str] = (),
        queue_conn_id: str = DEFAULT_CONNECTION,
        reader: str = "airflow",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wanted = EventFilter.of(queue_name, events, job_names)
        self.queue_conn_id = check_text(queue_conn_id, "queue_conn_id")
        self.reader = check_text(reader, "reader")

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        arguments = {**_arguments(self.wanted, self.queue_conn_id), "reader": self.reader}
        return f"{__name__}.{type(self).__name__}", arguments

    def shared_stream_key(self) -> Hashable:
        """Return what makes this trigger's events those of another."""
        return (type(self).__name__, self.queue_conn_id, self.wanted, self.reader)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the producer, which learns from the triggerer which events were recorded."""
        return _EventProducer(cls(**kwargs))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Yield the producer's events."""
        async for event in shared_stream:
            yield TriggerEvent(event)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield events where no triggerer says which were recorded; each counts as such when the next is taken."""
        producer = _EventProducer(self)
        try:
            async for event, position in producer.open_stream():
                yield TriggerEvent(event)
                await producer.store(position)
        finally:
            await producer.aclose()


class _EventProducer(SharedStreamProducer):
    """Reads the events of one or more equal triggers, and stores which of them Airflow has recorded.

    Args:
        trigger: One of them.
    """

    def __init__(self, trigger: QueueEventTrigger) -> None:
        self._wanted = trigger.wanted
        self._reader = f"{trigger.reader}-{trigger.wanted.digest}"
        self._hook = QueueHook(trigger.queue_conn_id)
        self._resources = AsyncExitStack()
        self._feed: EventFeed | None = None
        self._latest = ""
        """The latest event that was yielded."""

    async def open_stream(self) -> AsyncIterator[tuple[dict[str, Any], str]]:
        """Yield each event with its position. Outlasts an unreachable server."""
        while True:
            try:
                if self._feed is None:
                    self._feed = await self._resources.enter_async_context(
                        open_feed(self._hook, self._wanted, self._reader)
                    )
                position, found = await self._feed.read(_WAIT_S)
                for event in found:
                    self._latest = event["event_id"]
                    yield event, self._latest
                    await asyncio.sleep(
                        0
                    )  # the triggerer fails a watcher with 1,024 events that it had no time to take
                if not found and self._latest in ("", self._feed.position):
                    # All that were wanted are recorded; do not keep, nor read again, those that were not.
                    await self._feed.store(position)
                    self._latest = ""
            except TransportError as error:
                await pause_for(error)

    async def store(self, position: str) -> None:
        """Store that Airflow has recorded all events up to a position."""
        if self._feed is not None:
            await self._feed.store(position)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Store that events were recorded.

        Raises:
            ServerError: One was not; the triggerer then reads again from there.
        """
        for number, item in enumerate(batch):
            if not item.outcome.is_clean:
                if number:
                    await self.store(batch[number - 1].broker_payload)
                raise ServerError(f"Airflow has not recorded event {item.broker_payload}; it is read again.")
        await self.store(batch[-1].broker_payload)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._resources.aclose()


def _arguments(wanted: EventFilter, queue_conn_id: str) -> dict[str, Any]:
    return {
        "queue_name": wanted.queue_name,
        "events": list(wanted.events),
        "job_names": list(wanted.job_names),
        "queue_conn_id": queue_conn_id,
    }
