"""A bounded listen to queues' events: from a cursor each, until something of interest happens or time is up."""

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

__all__ = ["CURSOR_WORDS", "Heard", "QueueEvent", "dump_cursor", "listen", "load_cursor", "read_object"]

CURSOR_WORDS = ("now", "oldest")
"""What a cursor that is set by hand may hold in place of an event's id."""


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
    """Read the last event heard, by queue: its id, or one of :data:`CURSOR_WORDS`.

    Queues of which the cursor says nothing are left out.

    Raises:
        UsageError: It is no cursor.
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
        f"The sensor's cursor {cursor[:100]!r} is no JSON object of queues and events' ids; set it to one such as "
        '{"my-queue": "oldest"}, which starts with the oldest event that is kept.'
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
class Heard:
    """What a listen brought.

    Attributes:
        page: All that was read since something of interest happened, in the order it was.
        wanted: What of it is of interest.
        before: By queue, the event after which that reading began.
        passed: How many events went by, of interest or not.
        gaps: By queue, that the server had dropped events before they were heard.
    """

    page: Sequence[QueueEvent]
    wanted: Sequence[QueueEvent]
    before: Mapping[str, str]
    passed: int
    gaps: Mapping[str, Event]

    def cursors(self, until: QueueEvent | None = None) -> dict[str, str]:
        """Where the next listen starts, by queue: after everything, or with the event that was not dealt with."""
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
) -> Heard:
    """Listen to queues, from a cursor on each.

    Returns when a read contained an event of interest and either ``linger`` has passed or there is more to read than
    the limit. Takes one exchange per read and queue, to detect dropped events, plus the read.

    Args:
        connection: The server.
        cursors: By queue, the id of the last event that was read.
        select: Which events of a read are of interest.
        wait: Maximum time to listen.
        limit: Maximum events of a queue per read.
        linger: How long to continue after the first event of interest.
    """
    deadline = time.monotonic() + wait.total_seconds()
    gaps: dict[str, Event] = {}
    before: dict[str, str] = {}
    kept: list[QueueEvent] = []
    wanted: list[QueueEvent] = []
    passed = 0
    with EventReader(connection, cursors, page=limit) as reader:
        while True:
            if not wanted:  # what went by without interest needs no second look
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
                return Heard(kept, wanted, before, passed, gaps)


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
