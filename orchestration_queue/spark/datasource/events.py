"""Read ranges of a queue's stream of events, or of its stream of ready jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orchestration_queue.errors import ServerError, StateError
from orchestration_queue.protocol.call import BATCH_SIZE, Reply, text
from orchestration_queue.protocol.operations import event_log, partitions
from orchestration_queue.protocol.operations.event_log import Position, Tail, read_events
from orchestration_queue.protocol.record import pairs
from orchestration_queue.spark.datasource.columns import COLUMNS, chosen
from orchestration_queue.spark.datasource.options import QueueAddress, StreamKeys
from orchestration_queue.spark.datasource.reader import ReadOptions, jobs_batches

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = [
    "EventsPartition",
    "EventsPartitionReader",
    "EventsReader",
    "ReadyJobsReader",
    "StreamOptions",
    "cut",
    "stream_tail",
]

_log = logging.getLogger(__name__)


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
    kept = 1_000
    """About how many events a queue keeps."""

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
            f"the queue keeps about the last {self.kept:,}"
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
