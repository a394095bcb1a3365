"""Read a queue's events, or its jobs as they become ready, as a Spark stream whose offsets are stream ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from orchestration_queue.errors import InvalidOptionError, StateError
from orchestration_queue.protocol.call import text
from orchestration_queue.protocol.operations import event_log, partitions
from orchestration_queue.protocol.operations.event_log import Position, Tail, place
from orchestration_queue.protocol.operations.job_output import is_position
from orchestration_queue.spark.datasource.events import (
    EventsPartition,
    EventsPartitionReader,
    StreamOptions,
    cut,
    stream_tail,
)
from orchestration_queue.spark.datasource.options import SourceOptions
from orchestration_queue.spark.datasource.reader import READ_OPTIONS

__all__ = ["STREAM_OPTIONS", "QueueStreamReader"]

STREAM_OPTIONS = (*READ_OPTIONS, "startingOffsets", "maxRowsPerTrigger", "failOnDataLoss")
_MOST_ROWS = 1_000_000

Offset = dict[str, Any]
"""The offset in a checkpoint: ``id``, ``count``, and ``parts``, so that a batch is always divided in the same way."""


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

    def _offset(self, position: Position) -> Offset:
        return {"id": position.id, "count": position.count, "parts": self._options.parts}

    def _tail(self) -> Tail:
        with self._options.address.connect() as connection:
            return stream_tail(connection, self._reader.stream)

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Return where a query without a checkpoint begins, the same for both calls of Spark."""
        if self._first is None:
            self._first = self._find_start()
        return self._offset(self._first)

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
        """Return where the next batch ends. One exchange, or two if rows are limited."""
        with self._options.address.connect() as connection:
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
