"""Listen to queues' events from cursors, until a wanted event occurs or the time limit is reached."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from orchestration_queue.client import EventReader
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log
from orchestration_queue.protocol.operations.event_log import Event, gap_after, place
from orchestration_queue.protocol.operations.job_output import is_position
from orchestration_queue.server import Connection

__all__ = ["CURSOR_WORDS", "EventPage", "QueueEvent", "dump_cursor", "listen", "load_cursor", "read_object"]

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
