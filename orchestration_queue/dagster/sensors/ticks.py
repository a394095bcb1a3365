"""The parts of a sensor's tick: listen to queues' events from cursors, and collect the answers into a result."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

import dagster as dg

from orchestration_queue.client import EventReader
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log
from orchestration_queue.protocol.operations.event_log import Event, gap_after, place
from orchestration_queue.protocol.operations.job_output import is_position
from orchestration_queue.server import Connection

__all__ = [
    "CURSOR_WORDS",
    "Answer",
    "Answers",
    "AssetEvent",
    "EventPage",
    "Partition",
    "QueueEvent",
    "Reaction",
    "dump_cursor",
    "listen",
    "load_cursor",
    "read_object",
    "request_run",
]

CURSOR_WORDS = ("now", "oldest")
"""Values of a cursor that a user may set instead of an event's id."""


def read_object(cursor: str) -> Mapping[str, object]:
    """Read a cursor that is a JSON object.

    Raises:
        UsageError: The text is not a cursor.
    """
    try:
        read = json.loads(cursor)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise _unreadable(cursor)
    return read


def load_cursor(cursor: str | None, queues: Sequence[str]) -> dict[str, str]:
    """Read the id of the last event of each queue, or one of :data:`CURSOR_WORDS`.

    Queues that are not in the cursor are omitted.

    Raises:
        UsageError: The text is not a cursor.
    """
    if not cursor:
        return {}
    if is_position(cursor):
        return {queues[0]: cursor}
    heard = read_object(cursor)
    if not all(isinstance(at, str) and (at in CURSOR_WORDS or is_position(at)) for at in heard.values()):
        raise _unreadable(cursor)
    return {queue: str(heard[queue]) for queue in queues if queue in heard}


def dump_cursor(heard: Mapping[str, str]) -> str:
    """Dump the cursor as Dagster stores it."""
    return json.dumps(dict(sorted(heard.items())))


def _unreadable(cursor: str) -> UsageError:
    return UsageError(
        f"The sensor's cursor must be a JSON object of queues and event ids, got {cursor[:100]!r}; set it, for "
        'instance, to {"my-queue": "oldest"}, which starts with the oldest event that is kept.'
    )


@dataclass(frozen=True, slots=True)
class QueueEvent(Event):
    """An event in one of the queues that a sensor listens to.

    Attributes:
        queue: The queue.
        job_name: The name of its job; None unless the sensor filters by job name, or if the job no longer exists.
    """

    queue: str = ""
    job_name: str | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """The events that a tick read.

    Attributes:
        page: All events since the first read with a wanted event, in order of time.
        wanted: The wanted events.
        before: The event before the page, by queue.
        passed: The number of all events read.
        gaps: The gaps of queues whose server had dropped events before they were read.
    """

    page: Sequence[QueueEvent]
    wanted: Sequence[QueueEvent]
    before: Mapping[str, str]
    passed: int
    gaps: Mapping[str, Event]

    def cursors(self, until: QueueEvent | None = None) -> dict[str, str]:
        """Return the next cursor of each queue: after all events, or at the first event that was not handled."""
        cursors = dict(self.before)
        for event in self.page:
            if event is until:
                break
            cursors[event.queue] = event.id
        return cursors


def listen(
    connection: Connection,
    cursors: Mapping[QueueKeys, str],
    *,
    select: Callable[[Sequence[QueueEvent]], Sequence[QueueEvent]],
    wait: timedelta,
    limit: int,
    linger: timedelta = timedelta(0),
) -> EventPage:
    """Listen to queues from a cursor in each.

    Return after a read with a wanted event, when ``linger`` has passed or the limit is reached. Takes one exchange per
    read and queue, to detect dropped events, plus the read.

    Args:
        connection: The server.
        cursors: The id of the last event read, by queue.
        select: Returns the wanted events of a read.
        wait: Maximum time to listen.
        limit: Maximum events of a queue per read.
        linger: How long to continue after the first wanted event.
    """
    deadline = time.monotonic() + wait.total_seconds()
    gaps: dict[str, Event] = {}
    before: dict[str, str] = {}
    kept: list[QueueEvent] = []
    wanted: list[QueueEvent] = []
    passed = 0
    with EventReader(connection, cursors, page=limit) as reader:
        while True:
            if not wanted:  # skip events before the first wanted one
                before, kept = {keys.queue: cursor for keys, cursor in reader.cursors.items()}, []
            # Before the read, which moves the cursors past a gap; a queue's first gap counts.
            gaps = {**_gaps(connection, reader.cursors), **gaps}
            read = reader.read(max(0.0, deadline - time.monotonic()))
            page = sorted((_of(keys, event) for keys, event in read), key=lambda event: (place(event.id), event.queue))
            passed += len(page)
            found = select(page) if page else ()
            if found and not wanted:
                deadline = time.monotonic() + linger.total_seconds()
            kept += page
            wanted += found
            if time.monotonic() >= deadline or (wanted and _is_full(kept, limit)):
                return EventPage(kept, wanted, before, passed, gaps)


def _is_full(events: Sequence[QueueEvent], limit: int) -> bool:
    return max(Counter(event.queue for event in events).values()) >= limit


def _of(keys: QueueKeys, event: Event) -> QueueEvent:
    return QueueEvent(event.id, event.type, event.job_id, event.fields, keys.queue)


def _gaps(connection: Connection, cursors: Mapping[QueueKeys, str]) -> dict[str, Event]:
    found = {
        keys.queue: gap_after(cursor, connection.follow(event_log.oldest_event(keys)))
        for keys, cursor in cursors.items()
    }
    return {queue: gap for queue, gap in found.items() if gap is not None}


AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
"""An event about an asset that a sensor reports without a run."""
Answer: TypeAlias = dg.RunRequest | AssetEvent
Reaction: TypeAlias = Callable[[QueueEvent, QueueResource], Answer | Iterable[Answer] | None]
"""A function that answers an event with a run request, an asset event, several of them, or nothing."""
Partition: TypeAlias = Callable[[QueueEvent], str | None]
"""A function that returns the partition of an event; None for none."""

_SINGLES = (dg.RunRequest, dg.AssetMaterialization, dg.AssetObservation, dg.AssetCheckEvaluation)
_OURS = "orchestration_queue/"


def request_run(event: QueueEvent, _resource: QueueResource) -> dg.RunRequest:
    """Request a run for each event, with the event's type, queue and job as tags."""
    # Not `queue`: that tag places the run and its steps on a queue.
    return dg.RunRequest(
        tags={_OURS + "event": event.type, _OURS + "source_queue": event.queue, _OURS + "job_id": event.job_id}
    )


class Answers:
    """The answers to the events of one tick.

    Args:
        sensor: The sensor's name.
        is_alone: Whether there is only one queue, so that an event's id is unique.
        partition: Returns the partition of an event.
        dynamic: The definition to add new partitions to.
    """

    def __init__(
        self,
        sensor: str,
        *,
        is_alone: bool = True,
        partition: Partition | None = None,
        dynamic: dg.DynamicPartitionsDefinition | None = None,
    ) -> None:
        self.sensor = sensor
        self._is_alone = is_alone
        self._partition = partition
        self._dynamic = dynamic
        self._requests: dict[str, dg.RunRequest] = {}
        self._partitions: dict[str, None] = {}
        self.asset_events: list[AssetEvent] = []

    def take(self, event: QueueEvent, answer: object) -> None:
        """Add the answer to an event.

        Raises:
            UsageError: The answer has an unknown type.
        """
        answers = [self._check(one, event) for one in _as_list(answer)]
        key = self._partition(event) if self._partition else None
        if key is not None and answers and self._dynamic is not None:
            self._partitions[key] = None
        keyless = 0
        for one in answers:
            if isinstance(one, dg.RunRequest):
                keyless += not one.run_key
                self._request(one, self._run_key(event, keyless), key)
            else:
                self.asset_events.append(_with_origin(one, event, key))

    def _check(self, answer: object, event: QueueEvent) -> Answer:
        if isinstance(answer, _SINGLES):
            return answer
        raise UsageError(
            f"Sensor {self.sensor!r} returned {type(answer).__name__} for event {event.id}; return run "
            "requests, asset materializations, observations or check evaluations, or None."
        )

    def _run_key(self, event: QueueEvent, number: int) -> str:
        """Return a key from the event's queue and id, so that no event requests a run twice."""
        base = event.id if self._is_alone else f"{event.queue}:{event.id}"
        return base if number <= 1 else f"{base}:{number}"

    def _request(self, request: dg.RunRequest, run_key: str, partition: str | None) -> None:
        if not request.run_key:
            request = request.with_replaced_attrs(run_key=run_key)
        if partition is not None and request.partition_key is None:
            request = request.with_replaced_attrs(partition_key=partition)
        self._requests.setdefault(request.run_key or "", request)

    def result(self, cursor: str, quiet: str) -> dg.SensorResult:
        """Build the tick's result with the next cursor; Dagster requires a reason if there are no requests."""
        requests = list(self._requests.values())
        if self.asset_events:
            quiet = f"Reported {len(self.asset_events)} asset events, and no event requested a run."
        add = self._dynamic.build_add_request(list(self._partitions)) if self._dynamic and self._partitions else None
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else quiet,
            cursor=cursor,
            dynamic_partitions_requests=[add] if add else None,
            asset_events=self.asset_events,
        )


def _as_list(answer: object) -> Iterable[object]:
    """Return the answers; a single one may be a tuple, as some of Dagster's types are."""
    if answer is None:
        return ()
    if isinstance(answer, Iterable) and not isinstance(answer, (*_SINGLES, str)):
        return answer
    return (answer,)


def _with_origin(answer: AssetEvent, event: QueueEvent, partition: str | None) -> AssetEvent:
    """Add the event's id and job to an asset event, which repeats if Dagster is killed before it saves the cursor."""
    origin = {_OURS + "event_id": event.id, _OURS + "queue": event.queue, _OURS + "job_id": event.job_id}
    if isinstance(answer, dg.AssetCheckEvaluation):
        return answer.with_metadata({**answer.metadata, **origin})
    marked = answer.with_metadata({**answer.metadata, **origin})
    if partition is not None and marked.partition is None:
        marked = marked._replace(partition=partition)
    return marked
