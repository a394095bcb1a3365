"""The data source: select the reader or writer from Spark's options."""

from __future__ import annotations

import json
import secrets
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from orchestration_queue.dialects.chasquimq.jobs import MAX_LENGTH, JobBuilder, NewChasquiJob
from orchestration_queue.dialects.chasquimq.keys import ulids
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.protocol.call import BATCH_SIZE
from orchestration_queue.server.clock import now_ms
from orchestration_queue.spark.datasource.chasquimq.reader import (
    CHASQUI_WRITE_OPTIONS,
    COLUMNS,
    STREAM_OPTIONS,
    ChasquiEventsReader,
    ChasquiReadOptions,
    DeadLettersReader,
    JobsReader,
    ReadyJobsReader,
    chasqui_address,
)
from orchestration_queue.spark.datasource.columns import ddl
from orchestration_queue.spark.datasource.events import EventsReader
from orchestration_queue.spark.datasource.limit import limit_rows, refuse_limit
from orchestration_queue.spark.datasource.options import SourceOptions
from orchestration_queue.spark.datasource.rows import RowEncoder
from orchestration_queue.spark.datasource.stream import QueueStreamReader
from orchestration_queue.spark.datasource.write_options import WriteOptions

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = ["ChasquiDataSource"]


class ChasquiDataSource(DataSource):
    """A ChasquiMQ queue as a Spark data source, of format ``chasquimq``. Its options are in docs/how-to/chasquimq.md.

    Spark finds it, or you register it with ``spark.dataSource.register(ChasquiDataSource)``.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "chasquimq"

    def _given(self) -> SourceOptions:
        return SourceOptions(self.options, STREAM_OPTIONS, "reading a ChasquiMQ queue")

    def schema(self) -> str:
        """Return the columns of the rows."""
        options = ChasquiReadOptions.of(self._given(), 4)
        return ddl(options.read, options.columns, COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for the current contents of the queue."""
        options = ChasquiReadOptions.of(self._given(), 4)
        return limit_rows(self._reader(options, schema), options.limit)

    def _reader(self, options: ChasquiReadOptions, schema: StructType) -> DataSourceReader:
        if options.read == "jobs":
            return JobsReader(options, ReadyJobsReader(options, schema))
        of_stream = ChasquiEventsReader if options.read == "events" else DeadLettersReader
        return EventsReader(options, of_stream(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Return a reader for events as they happen."""
        given = self._given()
        options = ChasquiReadOptions.of(given, 1)
        if options.read != "events":
            raise InvalidOptionError(
                f"Option read must be events for a stream, got {options.read!r}; use spark.read for {options.read}."
            )
        refuse_limit(options.limit)
        return QueueStreamReader(
            options, given, lambda watches: ChasquiEventsReader(options, schema, watches_losses=watches)
        )

    def _writing(self, schema: StructType, overwrite: bool) -> WriteOptions:
        if overwrite:
            raise InvalidOptionError("A queue cannot be overwritten, because its jobs may run; use mode('append').")
        given = SourceOptions(self.options, CHASQUI_WRITE_OPTIONS, "writing to a ChasquiMQ queue")
        return WriteOptions.of(given, schema, chasqui_address(given))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer that adds the rows of one write as jobs."""
        from orchestration_queue.spark.datasource.writer import QueueWriter

        return QueueWriter(self._writing(schema, overwrite), _add_rows)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802  Spark's
        """Return the writer that adds the rows of a stream as jobs."""
        from orchestration_queue.spark.datasource.writer import QueueStreamWriter

        return QueueStreamWriter(self._writing(schema, overwrite), _add_rows)


def _add_rows(connection: Connection, options: WriteOptions, rows: RowEncoder, batch: pa.RecordBatch) -> int:
    """Add rows as jobs, 1,000 per exchange, and return how many are new."""
    common, now, new = options.options, now_ms(), 0
    prepared, builder = [], JobBuilder(options.address.keys, now, ulids(now, secrets.randbits), MAX_LENGTH)
    for name, job_id, data, (_, delay_s) in zip(*rows.columns(batch), strict=True):
        delay = common.delay if delay_s is None else delay_s
        job = NewChasquiJob(name, json.loads(data), delay, None, common.attempts or None, None, job_id)
        prepared.append(builder.build(builder.check(job)))
    for first in range(0, len(prepared), BATCH_SIZE):
        some = prepared[first : first + BATCH_SIZE]
        # Each job has an id, so its call adds it only once, even when it is sent again.
        replies = connection.pipeline([call for job in some for call in job.calls], repeatable=True)
        new += sum(job.added(reply).is_new for job, reply in zip(some, replies, strict=True))
    return new
