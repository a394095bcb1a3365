"""Write each row as one job, even if Spark retries a task: the job's id is made from the row."""

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
    """What one task wrote.

    Attributes:
        rows: Number of rows.
        new: Number of their jobs that did not exist before.
    """

    rows: int
    new: int


AddRows: TypeAlias = Callable[["Connection", WriteOptions, RowEncoder, pa.RecordBatch], int]
"""Adds a batch of rows as jobs and returns the number of new ones. Spark pickles it by name."""


def add_rows(connection: Connection, options: WriteOptions, rows: RowEncoder, batch: pa.RecordBatch) -> int:
    """Add rows as jobs, and return how many are new."""
    keys, new = options.address.keys, 0
    for portion in additions.portions(rows.jobs(batch, now_ms())):
        operation = additions.add_own(keys, portion, skip_events=not options.emit_events)
        # Repeatable after a lost connection: jobs that were added already are not added again.
        new += connection.run(operation, repeatable=True)
    return new


class QueueWriter(DataSourceArrowWriter):
    """Adds rows as jobs, about 1,000 per call.

    If a task or a whole write is retried, the jobs that exist are not added again. An aborted write keeps the jobs that
    it has added, because they may be running.
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
        """Log the number of jobs. They were added when they were written."""
        self._log_totals(messages, "")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of jobs that successful tasks added; they are kept."""
        self._log_totals(messages, " before the write was aborted")

    def _log_totals(self, messages: list[WriterCommitMessage | None], when: str) -> None:
        done = [message for message in messages if isinstance(message, WriteSummary)]
        rows, new = sum(message.rows for message in done), sum(message.new for message in done)
        _log.info("Queue %r got %d jobs of %d rows%s.", self._options.address.keys.queue, new, rows, when)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """Adds the rows of each batch of a stream as jobs."""

    def __init__(self, options: WriteOptions, add: AddRows = add_rows) -> None:
        self._batch = _MicroBatchWriter(options, add)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteSummary:
        """Add the jobs of one task's rows."""
        return self._batch.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  Spark's
        """Log the number of jobs."""
        self._batch.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  Spark's
        """Log the number of jobs that successful tasks added; they are kept, and a retry does not add them again."""
        self._batch.abort(messages)


class _MicroBatchWriter(QueueWriter):
    """Writes a batch, which Spark may write again after a restart under the same number."""

    def _origin(self, context: TaskContext) -> str:
        query, batch = (
            context.getLocalProperty(f"{name}") for name in ("sql.streaming.queryId", "streaming.sql.batchId")
        )
        return f"{query}.{batch}.{context.partitionId()}."
