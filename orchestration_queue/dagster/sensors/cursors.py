"""A sensor's cursor: for each queue, the id of the last event that was heard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.operations.job_output import is_position

__all__ = ["CURSOR_WORDS", "dump_cursor", "load_cursor", "read_object"]

CURSOR_WORDS = ("now", "oldest")
"""What a cursor that is set by hand may hold in place of an event's id."""


def read_object(cursor: str) -> Mapping[str, object]:
    """A cursor that is a JSON object.

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
    """The last event heard, by queue: its id, or one of :data:`CURSOR_WORDS`.

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
    """The cursor as Dagster stores it."""
    return json.dumps(dict(sorted(heard.items())))


def _unreadable(cursor: str) -> UsageError:
    return UsageError(
        f"The sensor's cursor {cursor[:100]!r} is no JSON object of queues and events' ids; set it to one such as "
        '{"my-queue": "oldest"}, which starts with the oldest event that is kept.'
    )
