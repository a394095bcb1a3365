"""The output of a running job: log lines, progress, and the job's own stream."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from orchestration_queue.errors import PayloadError, UsageError
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Operation, Reply, text
from orchestration_queue.protocol.codec import MAX_PAYLOAD_BYTES
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.event_log import Event, read_events
from orchestration_queue.protocol.record import pairs

__all__ = [
    "FIRST_ENTRY",
    "StreamEntry",
    "append",
    "check_position",
    "chunk",
    "follow",
    "is_position",
    "log",
    "progress",
    "read",
]

FIRST_ENTRY = "0"
"""The position before a stream's first entry."""


_Value: TypeAlias = str | int | float


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One entry of a job's stream.

    Attributes:
        id: Its position in the stream; pass it back to continue after it.
        fields: The fields that the handler wrote, as text.
    """

    id: str
    fields: Mapping[str, str]

    @property
    def type(self) -> str | None:
        """The kind of chunk; None if it is not a chunk."""
        return self.fields.get("type")

    @property
    def content(self) -> str | None:
        """The chunk's content; None without one."""
        return self.fields.get("content")


def append(keys: QueueKeys, job_id: str, fields: Mapping[str, _Value]) -> Operation[str]:
    """Append an entry of strings and numbers to the job's stream; read its id.

    Raises:
        UsageError: There are no fields, or one is neither a string nor a number.
        PayloadError: Names and values together are larger than 1 MiB.
    """
    if not isinstance(fields, Mapping) or not fields:
        raise UsageError(f"`fields` must be a dict with at least one field, got {fields!r}.")
    words = tuple(word for pair in fields.items() for word in map(_word, pair))
    size = sum(len(word.encode()) for word in words)
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadError(
            f"The stream's entry exceeds maximum size ({size:,} of {MAX_PAYLOAD_BYTES:,} bytes); "
            "split it into several entries."
        )
    return Operation(Call("XADD", (keys.stream_of(job_id),), ("*", *words)), text)


def _word(word: object) -> str:
    if isinstance(word, bool) or not isinstance(word, (str, int, float)):
        raise UsageError(f"A stream's fields must be strings or numbers, got {word!r}; encode it as JSON.")
    try:
        str(word).encode()
    except UnicodeEncodeError as error:
        raise PayloadError(f"The stream's entry cannot be written as UTF-8 ({error}); pass text.") from None
    return str(word)


def chunk(type: str, content: str | None = None) -> dict[str, str]:  # noqa: A002  the wire's word
    """Return the fields of a chunk, the kind of entry that readers in every language understand.

    Raises:
        UsageError: The type is empty, or not text.
    """
    if not isinstance(type, str) or not type:
        raise UsageError(f"Chunk type must be a non-empty string, got {type!r}; pass a word such as 'token'.")
    return {"type": type} if content is None else {"type": type, "content": content}


def read(keys: QueueKeys, job_id: str, after: str = FIRST_ENTRY, count: int = 100) -> Operation[list[StreamEntry]]:
    """Read up to ``count`` entries after a position, oldest first.

    Raises:
        UsageError: The position is not an entry's id, or the count is not positive.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"`count` must be a whole number >= 1, got {count!r}.")
    start = check_position(after)
    return Operation(Call("XRANGE", (keys.stream_of(job_id),), (f"({start}", "+", "COUNT", count)), _read_entries)


def follow(
    keys: QueueKeys, job_id: str, after: str, event_after: str, block_ms: int, count: int = 100
) -> Operation[tuple[list[StreamEntry], list[Event]]]:
    """Read a job's next entries and its queue's next events; wait up to ``block_ms`` for either. Blocks."""
    own = keys.stream_of(job_id)

    def parse(reply: Reply) -> tuple[list[StreamEntry], list[Event]]:
        by_stream = {text(stream): found for stream, found in reply or ()}
        return _read_entries(by_stream.get(own)), read_events(by_stream.get(keys.events))

    streams = ("STREAMS", own, keys.events, after, event_after)
    return Operation(Call("XREAD", args=("COUNT", count, "BLOCK", block_ms, *streams), near=own), parse)


def _read_entries(reply: Reply) -> list[StreamEntry]:
    return [StreamEntry(text(entry_id), pairs(flat)) for entry_id, flat in reply or ()]


def is_position(after: object) -> bool:
    """Whether this is a position in a stream: an entry's id, or the milliseconds with which such an id begins."""
    return re.fullmatch(r"[0-9]{1,20}(-[0-9]{1,20})?", str(after)) is not None


def check_position(after: str) -> str:
    """Return a position in a job's stream.

    Raises:
        UsageError: It is not an entry's id.
    """
    if not is_position(after):
        raise UsageError(
            f"`after` must be the `id` of an entry that was read, or '0' for the beginning; got {after!r}."
        )
    return str(after)


def log(keys: QueueKeys, job_id: str, lines: Sequence[str]) -> Call:
    """Append lines to the job's log.

    Raises:
        UsageError: A line is not text.
        PayloadError: A line is larger than 1 MiB.
    """
    for line in lines:
        if not isinstance(line, str):
            raise UsageError(f"A log line must be text, got {line!r}; pass str({line!r}).")
        codec.encode(line, "Log line")
    return Call("RPUSH", (keys.log(job_id),), tuple(lines))


def progress(keys: QueueKeys, job_id: str, value: Any) -> Call:
    """Store the job's progress and publish it as an event.

    Raises:
        PayloadError: It is not JSON, or larger than 1 MiB.
    """
    return oq1.report_progress(keys, job_id=job_id, progress=codec.encode(value, "Progress"))
