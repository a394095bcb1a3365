"""A worker's reports, batched: acknowledgements, other settlements and events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from orchestration_queue.dialects.chasquimq.keys import ChasquiKeys
from orchestration_queue.dialects.chasquimq.packing import pack
from orchestration_queue.errors import ServerError, TransportError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["Event", "Outbox", "Settlement", "build_event", "report_calls"]

log = logging.getLogger("orchestration_queue.chasquimq")

T = TypeVar("T")

_WINDOW_S = 0.005
_BATCH = 256
_PAUSE_S = 0.2
_MAX_EVENTS = 100_000


Event: TypeAlias = list[str]
"""The fields and values of an entry of the event stream."""


def build_event(kind: str, job_id: str, name: str = "", *extras: str) -> Event:
    """Build an event, as the original writes it."""
    named = ("n", name) if name else ()
    return ["e", kind, "id", job_id, "ts", str(now_ms()), *named, *extras]


def report_calls(keys: ChasquiKeys, events: Sequence[Event]) -> list[Call]:
    """Build the calls that add events: one for many, since a command for each costs a worker more than its job."""
    return [
        functions.report(events_key=keys.events, max_length=_MAX_EVENTS, packed=pack(batch, "The events"))
        for batch in _batches(events)
    ]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of a job.

    Attributes:
        entry_id: Its entry in the stream.
        call: What records the outcome; None for an acknowledgement, which goes with others.
        event: What happened, if the outcome counted.
    """

    entry_id: str
    call: Call | None = None
    event: Event | None = None


class Outbox:
    """Sends a worker's reports at most 5 ms after they were made. Outages delay them.

    Args:
        connection: The connection.
        keys: The queue's keys.
        group: The consumer group.
        on_settled: Called with the entry of each settled job.
    """

    def __init__(
        self, connection: AsyncConnection, keys: ChasquiKeys, group: str, on_settled: Callable[[str], object]
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._group = group
        self._on_settled = on_settled
        self._events: list[Event] = []
        self._settlements: list[Settlement] = []
        self._wanted = asyncio.Event()

    def report(self, event: Event) -> None:
        """Send an event."""
        self._events.append(event)
        self._wanted.set()

    def settle(self, settlement: Settlement) -> None:
        """Send an outcome."""
        self._settlements.append(settlement)
        self._wanted.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wanted.wait()
            if len(self._settlements) < _BATCH:
                await asyncio.sleep(_WINDOW_S)
            await self.flush()

    async def flush(self) -> None:
        """Send everything that is waiting, however long it takes."""
        while self._events or self._settlements:
            self._wanted.clear()
            events, self._events = self._events, []
            settlements, self._settlements = self._settlements, []
            try:
                await self._send(events, settlements)
            except BaseException:
                # Cancelled half-way: what was sent already takes effect once.
                self._events, self._settlements = events + self._events, settlements + self._settlements
                raise

    async def _send(self, events: list[Event], settlements: list[Settlement]) -> None:
        single = [settlement for settlement in settlements if settlement.call is not None]
        acknowledged = [settlement.entry_id for settlement in settlements if settlement.call is None]
        reports = report_calls(self._keys, events)
        calls = [*reports, *(settlement.call for settlement in single if settlement.call is not None)]
        calls += [
            functions.acknowledge(stream_key=self._keys.stream, group=self._group, entry_ids=batch)
            for batch in _batches(acknowledged)
        ]
        replies = await self._pipeline(calls)
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, ServerError):
                log.error("Queue %s: the server refused %s: %s", self._keys.queue, call.name, reply)
        for settlement, reply in zip(single, replies[len(reports) :], strict=False):
            if reply == 1 and settlement.event is not None:
                self._events.append(settlement.event)
        for settlement in settlements:
            self._on_settled(settlement.entry_id)

    async def _pipeline(self, calls: list[Call]) -> list[Reply]:
        """Send calls, again after an outage: each settlement takes effect once, only events may come twice."""
        is_out = False
        while True:
            try:
                return await self._connection.pipeline(calls)
            except TransportError as error:
                if not is_out:
                    log.warning("Queue %s: outcomes wait for the server: %s", self._keys.queue, error)
                is_out = True
                await asyncio.sleep(_PAUSE_S)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[first : first + _BATCH] for first in range(0, len(items), _BATCH))
