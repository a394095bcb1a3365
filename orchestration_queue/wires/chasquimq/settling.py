"""Outcomes and events of a worker's jobs, sent in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import PayloadError, ServerError, TransportError, UnrecoverableError
from orchestration_queue.options import seconds
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.protocol.outcome import message_of
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.chasquimq.envelope import backoff_ms, join_member, pack_envelope
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.options import ChasquiObserver, ChasquiWorkerOptions
from orchestration_queue.wires.chasquimq.packing import pack
from orchestration_queue.wires.chasquimq.reader import ChasquiDelivery, Rejection

__all__ = ["ChasquiSettler", "Event", "Outbox", "Settlement", "build_event", "report_calls"]

log = get_logger("orchestration_queue.chasquimq")

T = TypeVar("T")

Event: TypeAlias = list[str]
"""The fields and values of an entry of the event stream."""

# The original waits as long for further jobs to acknowledge.
_WINDOW_S = 0.005
# In calls of this size, an acknowledgement costs the server 2.9 us (decision 0016).
_BATCH = 256
_PAUSE_S = 0.2
_MAX_EVENTS = 100_000
_MAX_REASON = 4096
"""The longest error text in events and dead letters."""


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
            # First: what is added from here on wakes the next round.
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
        # Only now: the leases are renewed until the server has the outcomes.
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


class ChasquiSettler:
    """Records the outcomes of a worker's jobs.

    Args:
        keys: The queue's keys.
        options: The worker's options.
        outbox: Sends the records.
        observer: Called for each.
    """

    def __init__(
        self, keys: ChasquiKeys, options: ChasquiWorkerOptions, outbox: Outbox, observer: ChasquiObserver
    ) -> None:
        self._observer = observer
        self._keys = keys
        self._options = options
        self._outbox = outbox

    def start(self, delivery: ChasquiDelivery) -> None:
        """Report that a handler starts."""
        self._report(delivery, "active")

    def complete(self, delivery: ChasquiDelivery, result: Any, duration_us: int) -> None:
        """Record a success; a result that can't be packed makes it a failure."""
        if not self._options.store_results or result is None:
            self._observer.completed(delivery.name, duration_us / 1e6)
            self._report(delivery, "completed", "duration_us", str(duration_us))
            self._outbox.settle(Settlement(delivery.entry_id))
            return
        try:
            value = pack(result, "The job's result")
        except PayloadError as error:
            self.fail(delivery, UnrecoverableError(str(error)), duration_us, 0.0)
            return
        self._observer.completed(delivery.name, duration_us / 1e6)
        ttl_ms = int(seconds(self._options.result_ttl) * 1000)
        call = functions.finish(
            stream_key=self._keys.stream,
            result_key=self._keys.result(delivery.job.id),
            group=self._options.group,
            entry_id=delivery.entry_id,
            ttl_s=max(1, -(-ttl_ms // 1000)),
            value=value,
        )
        # Reported once the result is stored, for callers that wait for it.
        extras = ("attempt", str(delivery.attempt), "duration_us", str(duration_us))
        event = self._event("completed", delivery.job.id, delivery.name, *extras)
        self._outbox.settle(Settlement(delivery.entry_id, call, event))

    def fail(self, delivery: ChasquiDelivery, error: BaseException, duration_us: int, chance: float) -> None:
        """Record a failed attempt: the job waits for its next one, or becomes a dead letter."""
        reason = message_of(error)[:_MAX_REASON]
        self._observer.failed(delivery.name, duration_us / 1e6)
        self._report(delivery, "failed", "reason", reason, "duration_us", str(duration_us))
        if isinstance(error, UnrecoverableError):
            self._outbox.settle(self._bury(delivery, "unrecoverable", reason))
        elif delivery.attempt >= delivery.max_attempts:
            self._outbox.settle(self._bury(delivery, "retries_exhausted", reason))
        else:
            self._outbox.settle(self._retry(delivery, chance))

    def reject(self, rejection: Rejection) -> None:
        """Move an entry that can't run to the dead-letter queue."""
        self._observer.buried(rejection.name, rejection.reason)
        extras = ("attempt", str(rejection.attempt), "reason", rejection.reason)
        event = self._event("dlq", "", rejection.name, *extras)
        call = functions.bury(
            stream_key=self._keys.stream,
            dead_letters_key=self._keys.dead_letters,
            group=self._options.group,
            entry_id=rejection.entry_id,
            max_dead=self._options.max_dead_letters,
            envelope=rejection.packed,
            job_name=rejection.name,
            reason=rejection.reason,
            detail=rejection.detail,
        )
        self._outbox.settle(Settlement(rejection.entry_id, call, event))

    def _retry(self, delivery: ChasquiDelivery, chance: float) -> Settlement:
        envelope = delivery.envelope.with_attempt(delivery.attempt)
        spec = None if envelope.retry is None else envelope.retry.backoff
        pause_ms = backoff_ms(spec, delivery.attempt, chance)
        self._observer.retried(delivery.name, pause_ms / 1000)
        call = functions.retry(
            stream_key=self._keys.stream,
            delayed_key=self._keys.delayed,
            group=self._options.group,
            entry_id=delivery.entry_id,
            backoff_ms=pause_ms,
            member=join_member(delivery.name, pack_envelope(envelope)),
        )
        extras = ("attempt", str(delivery.attempt + 1), "backoff_ms", str(pause_ms))
        event = self._event("retry-scheduled", delivery.job.id, delivery.name, *extras)
        return Settlement(delivery.entry_id, call, event)

    def _bury(self, delivery: ChasquiDelivery, reason: str, detail: str) -> Settlement:
        call = functions.bury(
            stream_key=self._keys.stream,
            dead_letters_key=self._keys.dead_letters,
            group=self._options.group,
            entry_id=delivery.entry_id,
            max_dead=self._options.max_dead_letters,
            envelope=pack_envelope(delivery.envelope.with_attempt(delivery.job.attempt)),
            job_name=delivery.name,
            reason=reason,
            detail=detail,
        )
        self._observer.buried(delivery.name, reason)
        extras = ("attempt", str(delivery.attempt), "reason", reason)
        return Settlement(delivery.entry_id, call, self._event("dlq", delivery.job.id, delivery.name, *extras))

    def _report(self, delivery: ChasquiDelivery, kind: str, *extras: str) -> None:
        if event := self._event(kind, delivery.job.id, delivery.name, "attempt", str(delivery.attempt), *extras):
            self._outbox.report(event)

    def _event(self, kind: str, job_id: str, name: str, *extras: str) -> Event | None:
        return build_event(kind, job_id, name, *extras) if self._options.emit_events else None
