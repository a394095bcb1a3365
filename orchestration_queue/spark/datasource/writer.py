"""Writing rows as jobs, each once, whatever is tried again: a row's job has an id that follows from the row."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from orchestration_queue.protocol.operations import additions
from orchestration_queue.server.clock import now_ms
from orchestration_queue.spark.datasource.rows import RowEncoder
from orchestration_queue.spark.datasource.write_options import WriteOptions

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = ["AddRows", "QueueStreamWriter", "QueueWriter"]

_log = logging.getLogger(__name__)


@dataclass
class WriteSummary(WriterCommitMessage):
    """What one task has written.

    Attributes:
        rows: How many rows.
        new: How many of their jobs were not there before.
    """

    rows: int
    new: int


AddRows: TypeAlias = Callable[["Connection", WriteOptions, RowEncoder, pa.RecordBatch], int]
"""Adds a batch of rows as jobs, and returns how many were new. Spark pickles it by name."""


def add_rows(connection: Connection, options: WriteOptions, rows: RowEncoder, batch: pa.RecordBatch) -> int:
    """Add rows as jobs of our own queue."""
    keys, new = options.address.keys, 0
    for portion in additions.portions(rows.jobs(batch, now_ms())):
        operation = additions.add_own(keys, portion, skip_events=not options.emit_events)
        # A broken connection is no reason to give the task up: what was added already is not added again.
        new += connection.run(operation, repeatable=True)
    return new


class QueueWriter(DataSourceArrowWriter):
    """Adds jobs as the rows come, about 1,000 to a call.

    The jobs of a task that is tried again, and those of a whole write that is, are there already; a write that is
    given up leaves those it has added, for they may be running.
    """

    def __init__(self, options: WriteOptions, add: AddRows = add_rows) -> None:
        self._options = options
        self._add = add
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteSummary:
        """Add the jobs of one task's rows."""
        rows = RowEncoder(self._options, self._origin(cast(TaskContext, TaskContext.get())))
        done = WriteSummary(0, 0)
        with self._options.address.connect() as connection:
            for batch in iterator:
                if batch.num_rows:
                    done.rows += batch.num_rows
                    done.new += self._add(connection, self._options, rows, batch)
        return done

    def _origin(self, context: TaskContext) -> str:
        return f"{self._run}.{context.partitionId()}."

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what was added; it is there since it was written."""
        self._tell(messages, "")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what was added by the tasks that ended well; it stays."""
        self._tell(messages, " before the write was given up")

    def _tell(self, messages: list[WriterCommitMessage | None], when: str) -> None:
        done = [message for message in messages if isinstance(message, WriteSummary)]
        rows, new = sum(message.rows for message in done), sum(message.new for message in done)
        _log.info("Queue %r got %d jobs of %d rows%s.", self._options.address.keys.queue, new, rows, when)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """Likewise, of each batch of a stream."""

    def __init__(self, options: WriteOptions, add: AddRows = add_rows) -> None:
        self._batch = _MicroBatchWriter(options, add)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteSummary:
        """Add the jobs of one task's rows."""
        return self._batch.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  Spark's
        """Say what was added."""
        self._batch.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  Spark's
        """Say what was added by the tasks that ended well; it stays, and is not added again with the next try."""
        self._batch.abort(messages)


class _MicroBatchWriter(QueueWriter):
    """A batch that Spark may write again after a restart, under the same number."""

    def _origin(self, context: TaskContext) -> str:
        query, batch = (
            context.getLocalProperty(f"{name}") for name in ("sql.streaming.queryId", "streaming.sql.batchId")
        )
        return f"{query}.{batch}.{context.partitionId()}."
