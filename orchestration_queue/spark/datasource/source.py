"""The data source: select the reader or writer from Spark's options."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.protocol import statistics
from orchestration_queue.protocol.statistics import Distribution, TaskStatistics
from orchestration_queue.spark.datasource.columns import chosen, ddl
from orchestration_queue.spark.datasource.options import QueueAddress, SourceOptions, limit_rows, own_keys, refuse_limit
from orchestration_queue.spark.datasource.reader import (
    DeadLettersReader,
    JobsReader,
    PushingJobsReader,
    ReadOptions,
    StepsReader,
)
from orchestration_queue.spark.datasource.stream import (
    STREAM_OPTIONS,
    EventsPartitionReader,
    EventsReader,
    QueueStreamReader,
    ReadyJobsReader,
)
from orchestration_queue.spark.datasource.write_options import WRITE_OPTIONS, WriteOptions

__all__ = ["QueueDataSource", "StatisticsReader"]

_KEPT_DAYS = 30
_BATCH_PARTS = 4
"""Default parts of each state in a batch read."""
_STREAM_PARTS = 1
"""Default parts of a stream's batch: a queue keeps about 1,000 events, and a task costs more than reading them."""


class QueueDataSource(DataSource):
    """A queue as a Spark data source, of format ``orchestration_queue``.

    Its options are in docs/how-to/spark-data-source.md. Spark finds it, or you register it with
    ``spark.dataSource.register(QueueDataSource)``.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "orchestration_queue"

    def _reading(self, parts: int) -> ReadOptions:
        return ReadOptions.of(self._read_options(), parts)

    def _read_options(self) -> SourceOptions:
        return SourceOptions(self.options, STREAM_OPTIONS, "reading a queue")

    def schema(self) -> str:
        """Return the columns of the rows."""
        options = self._reading(_BATCH_PARTS)
        return ddl(options.read, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for the current contents of the queue."""
        options = self._reading(_BATCH_PARTS)
        return limit_rows(self._reader(options, schema), options.limit)

    def _reader(self, options: ReadOptions, schema: StructType) -> DataSourceReader:
        if options.read == "dead_letters":
            return DeadLettersReader(options, schema)
        if options.read == "statistics":
            return StatisticsReader(options, schema)
        if options.read == "steps":
            return StepsReader(options, schema)
        if options.read == "events":
            return EventsReader(options, EventsPartitionReader(options, schema, watches_losses=False))
        return (PushingJobsReader if options.push_filters else JobsReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Return a reader for events as they happen, or for jobs as they become ready."""
        options, given = self._reading(_STREAM_PARTS), self._read_options()
        if options.read not in ("jobs", "events"):
            raise InvalidOptionError(
                f"Option read must be events or jobs for a stream, got {options.read!r}; "
                f"use spark.read for {options.read}."
            )
        refuse_limit(options.limit)
        if given.text("states"):
            raise InvalidOptionError(
                "Option states applies to batch reads, because a stream has jobs as they become ready; remove it."
            )

        def reader(watches_losses: bool) -> EventsPartitionReader:
            if options.read == "jobs":
                return ReadyJobsReader(options, schema)
            return EventsPartitionReader(options, schema, watches_losses=watches_losses)

        return QueueStreamReader(options, given, reader)

    def _writing(self, schema: StructType, overwrite: bool) -> WriteOptions:
        if overwrite:
            raise InvalidOptionError("A queue cannot be overwritten, because its jobs may run; use mode('append').")
        options = SourceOptions(self.options, WRITE_OPTIONS, "writing to a queue")
        return WriteOptions.of(options, schema, QueueAddress.of(options, own_keys(options)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer that adds the rows of one write as jobs."""
        from orchestration_queue.spark.datasource.writer import QueueWriter

        return QueueWriter(self._writing(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802  Spark's
        """Return the writer that adds the rows of a stream as jobs."""
        from orchestration_queue.spark.datasource.writer import QueueStreamWriter

        return QueueStreamWriter(self._writing(schema, overwrite))


class StatisticsReader(DataSourceReader):
    """Reads the statistics of all days that the queue keeps."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = chosen(options.read, schema)

    def partitions(self) -> list[InputPartition]:
        """Return one part: 30 days are read in one exchange."""
        return [InputPartition(None)]

    def read(self, _: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read all days."""
        keys, today = self._options.address.keys, datetime.now(UTC).date()
        operations = [statistics.statistics(keys, today - timedelta(days=back)) for back in range(_KEPT_DAYS)]
        with self._options.address.connect() as connection:
            replies = connection.pipeline([operation.call for operation in operations], repeatable=True)
        days = [operation.read(reply) for operation, reply in zip(operations, replies, strict=True)]
        rows = [self._row(found.day, name, task) for found in days for name, task in found.tasks.items()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(self._schema, timezone="UTC"))

    def _row(self, day: date, name: str, task: TaskStatistics) -> dict[str, Any]:
        known: dict[str, Any] = {
            "day": day.isoformat(),
            "name": name,
            "started": task.wait.count,
            "completed": task.completed,
            "failed": task.failed,
            "retried": task.retried,
            "steps": task.steps,
            **_seconds("wait", task.wait),
            **_seconds("run", task.run),
        }
        return {column: known[column] for column in self._columns}


def _seconds(what: str, spread: Distribution) -> dict[str, float]:
    parts = ("mean", "deviation", "p50", "p90", "p99")
    return {f"{what}_{part}_s": getattr(spread, part).total_seconds() for part in parts}
