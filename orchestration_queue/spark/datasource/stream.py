"""Read ranges of a queue's stream of events, or of its stream of ready jobs, in batches and as a Spark stream.

The offsets of a Spark stream are stream ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from orchestration_queue._logging import get_logger
from orchestration_queue.client import Registration
from orchestration_queue.errors import InvalidOptionError, ServerError, StateError
from orchestration_queue.protocol.call import BATCH_SIZE, Reply, text
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, partitions
from orchestration_queue.protocol.operations.event_log import Position, Tail, place, read_events
from orchestration_queue.protocol.operations.job_output import is_position
from orchestration_queue.protocol.record import pairs
from orchestration_queue.spark.datasource.columns import COLUMNS, chosen
from orchestration_queue.spark.datasource.options import QueueAddress, SourceOptions, StreamKeys
from orchestration_queue.spark.datasource.reader import READ_OPTIONS, ReadOptions, jobs_batches

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = [
    "STREAM_OPTIONS",
    "EventsPartition",
    "EventsPartitionReader",
    "EventsReader",
    "QueueStreamReader",
    "ReadyJobsReader",
    "StreamOptions",
    "cut",
    "stream_tail",
]

_log = get_logger(__name__)


@dataclass
class EventsPartition(InputPartition):
    """A range of a stream's entries.

    Attributes:
        after: The position before the first entry.
        until: Id of the last entry.
    """

    after: Position
    until: str


def cut(after: Position, until: str, parts: int) -> list[EventsPartition]:
    """Divide the entries after a position into partitions."""
    pieces = partitions.cut_entries(after.id, until, parts)
    return [
        EventsPartition(Position(first, None) if number else after, last) for number, (first, last) in enumerate(pieces)
    ]


def stream_tail(connection: Connection, stream: str) -> Tail:
    """Return the ends of a stream."""
    return event_log.read_tail(connection.pipeline([event_log.read_ends(stream)], repeatable=True)[0])


class StreamOptions(Protocol):
    """The options that readers of a stream need."""

    @property
    def address(self) -> QueueAddress[StreamKeys]:
        """The queue."""

    @property
    def read(self) -> str:
        """``events`` or ``jobs``."""

    @property
    def parts(self) -> int:
        """Maximum parts of the stream."""


class EventsPartitionReader:
    """Reads ranges of the event stream, one page per exchange.

    Args:
        options: What to read from which queue.
        schema: The requested columns.
        watches_losses: Fail if entries were dropped before they were read; False continues with the rest.
    """

    tables = COLUMNS
    _can_lose = True
    kept = "what a query has not read for two days, up to a million events or 256 MiB"
    """What a queue keeps, for errors."""

    def __init__(self, options: StreamOptions, schema: StructType, *, watches_losses: bool) -> None:
        self._options = options
        self._schema = schema
        self._columns = chosen(options.read, schema, self.tables)
        self._watches_losses = watches_losses

    @property
    def stream(self) -> str:
        """The stream's key."""
        return self._options.address.keys.events

    def read(self, partition: EventsPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition.

        Raises:
            StateError: Some of them were dropped, and `failOnDataLoss` is not false.
        """
        schema = to_arrow_schema(self._schema, timezone="UTC")
        at = partition.after
        with self._options.address.connect() as connection:
            while True:
                entries = self._page(connection, at, partition.until)
                yield from self._batches(connection, entries, schema)
                if len(entries) < BATCH_SIZE:
                    return
                at = Position(text(entries[-1][0]), None if at.count is None else at.count + len(entries))

    def _page(self, connection: Connection, at: Position, until: str) -> list[Reply]:
        """Read the next entries and the stream's ends in one transaction, so that no loss goes unnoticed."""
        calls = [event_log.read_ends(self.stream), event_log.entries_after(self.stream, at.id, until, BATCH_SIZE)]
        try:
            facts, entries = connection.pipeline(calls, atomic=True, repeatable=True)
        except ServerError as error:
            facts, entries = error, []
        if self._can_lose and event_log.read_tail(facts).has_lost(at):
            self._report_loss(at)
        return list(entries)

    def _report_loss(self, at: Position) -> None:
        loss = (
            f"Events of queue {self._options.address.keys.queue!r} after {at.id} were dropped before they were read: "
            f"the queue keeps {self.kept}"
        )
        if self._watches_losses:
            raise StateError(f"{loss}; read more often, or pass failOnDataLoss=false to continue with the rest.")
        _log.warning("%s; continuing with the rest.", loss)

    def _batches(self, _: Connection, entries: list[Reply], schema: pa.Schema, /) -> Iterator[pa.RecordBatch]:
        if rows := [{name: row[name] for name in self._columns} for row in self._rows(entries)]:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _rows(self, entries: list[Reply]) -> Iterator[dict[str, Any]]:
        """Yield the entries as rows."""
        for event in read_events(entries):
            yield {
                "id": event.id,
                "at": event.at,
                "event": event.type,
                "job_id": event.job_id,
                "fields": [*event.fields.items()],
            }


class ReadyJobsReader(EventsPartitionReader):
    """Reads ranges of the stream of ready jobs, with their records."""

    _can_lose = False  # workers remove the entries of jobs that have ended

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema, watches_losses=False)
        self._keys = options.address.keys

    @property
    def stream(self) -> str:
        """The stream's key."""
        return self._keys.stream

    def _batches(self, connection: Connection, entries: list[Reply], schema: pa.Schema, /) -> Iterator[pa.RecordBatch]:
        ids = [pairs(fields).get("jobId", "") for _, fields in entries]
        fields = [column.field for column in self._columns.values()]
        yield from jobs_batches(connection, self._keys, ids, fields, schema)


class EventsReader(DataSourceReader):
    """Reads the entries that a stream still has.

    Args:
        options: The queue, and the maximum parts of its stream.
        reader: Reads one part.
    """

    def __init__(self, options: StreamOptions, reader: EventsPartitionReader) -> None:
        self._options = options
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        """Divide the stream into parts of equal time. One exchange."""
        with self._options.address.connect() as connection:
            tail = stream_tail(connection, self._reader.stream)
        if tail.oldest is None:
            return []
        first = Position(partitions.before(tail.oldest), tail.dropped)
        return list(cut(first, tail.last.id, self._options.parts))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, 1,000 events per exchange."""
        if isinstance(partition, EventsPartition):  # Spark passes a placeholder for an empty stream
            yield from self._reader.read(partition)


STREAM_OPTIONS = (*READ_OPTIONS, "startingOffsets", "maxRowsPerTrigger", "failOnDataLoss")
_MOST_ROWS = 1_000_000

Offset = dict[str, Any]
"""The offset in a checkpoint: ``id``, ``count``, the query's ``reader``, whose name stays the same after a restart, and
``parts``, so that a batch is always divided in the same way."""


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is added to a stream.

    Args:
        options: What to read from which queue.
        given: Spark's options.
        reader: Makes the reader of a part; its argument says whether losses fail the query.

    Raises:
        UsageError: An option is invalid.
    """

    def __init__(
        self, options: StreamOptions, given: SourceOptions, reader: Callable[[bool], EventsPartitionReader]
    ) -> None:
        self._options = options
        self._most = given.count("maxRowsPerTrigger", None, _MOST_ROWS)
        self._starting = given.text("startingOffsets") or "latest"
        if self._starting not in ("earliest", "latest") and not is_position(self._starting):
            raise InvalidOptionError(
                "Option startingOffsets must be earliest, latest or the id of an event, "
                f"got {self._starting!r}; pass .option('startingOffsets', 'earliest')."
            )
        self._watches_losses = given.flag("failOnDataLoss", True)
        self._reader = reader(self._watches_losses)
        self._first: Position | None = None
        self._target: Position | None = None
        self._name = uuid4().hex

    def _offset(self, position: Position) -> Offset:
        return {"id": position.id, "count": position.count, "parts": self._options.parts, "reader": self._name}

    def _tail(self) -> Tail:
        with self._options.address.connect() as connection:
            return stream_tail(connection, self._reader.stream)

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Return where a query without a checkpoint begins, the same for both calls of Spark."""
        if self._first is None:
            self._first = self._find_start()
            with self._options.address.connect() as connection:
                self._keep_after(connection, self._first.id)
        return self._offset(self._first)

    def _keep_after(self, connection: Connection, event_id: str) -> None:
        """Make the queue keep the events after a position, up to which Spark has stored what it read."""
        keys = self._options.address.keys
        if isinstance(keys, QueueKeys) and self._reader.stream == keys.events:
            Registration(connection, self._name, event_log.STORED_READER_LEASE_S).start({keys: event_id})

    def _find_start(self) -> Position:
        if self._starting not in ("earliest", "latest"):
            return Position(self._starting, None)
        tail = self._tail()
        if self._starting == "latest" or tail.oldest is None:
            return tail.last
        return Position(partitions.before(tail.oldest), tail.dropped)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return ``maxRowsPerTrigger`` as a limit; without it, all rows."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  Spark's name
        """Return where the next batch ends. Two exchanges, or three if rows are limited."""
        self._name = start.get("reader", self._name)
        with self._options.address.connect() as connection:
            self._keep_after(connection, start["id"])
            tail = stream_tail(connection, self._reader.stream)
            end = self._target or tail.last
            if place(tail.last.id) < place(start["id"]):
                return self._handle_restart(start)
            if isinstance(limit, ReadMaxRows):
                call = event_log.entries_after(self._reader.stream, start["id"], end.id, limit.max_rows)
                entries = connection.execute(call, repeatable=True)
                if len(entries) == limit.max_rows:
                    counted = None if start["count"] is None else max(start["count"], tail.dropped) + len(entries)
                    end = Position(text(entries[-1][0]), counted)
        return self._offset(end) if place(end.id) > place(start["id"]) else start

    def _handle_restart(self, start: Offset) -> Offset:
        if self._watches_losses:
            raise StateError(
                f"Queue {self._options.address.keys.queue!r} was removed and created again after {start['id']} was "
                "read; start with a new checkpoint."
            )
        return start

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Record where the stream ends now, which is where the query ends."""
        self._target = self._tail().last

    def reportLatestOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Return where the stream ends now, for Spark's progress reports."""
        return self._offset(self._tail().last)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide a batch, always in the same way, without an exchange."""
        return cut(Position(start["id"], start["count"]), end["id"], end["parts"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition, 1,000 entries per exchange.

        Raises:
            StateError: Events were dropped before they were read, and ``failOnDataLoss`` is not false.
        """
        if isinstance(partition, EventsPartition):
            yield from self._reader.read(partition)
