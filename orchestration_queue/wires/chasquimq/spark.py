"""A ChasquiMQ queue as a data source: its jobs, events and dead letters as rows, and rows as jobs."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

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

from orchestration_queue.errors import InvalidOptionError, ServerError
from orchestration_queue.protocol.call import BATCH_SIZE, Call, Reply, text
from orchestration_queue.protocol.operations import event_log, partitions
from orchestration_queue.protocol.operations.event_log import Position
from orchestration_queue.server.clock import now_ms
from orchestration_queue.spark.datasource.columns import Column, Tables, ddl
from orchestration_queue.spark.datasource.options import (
    ADDRESS_OPTIONS,
    QueueAddress,
    SourceOptions,
    limit_rows,
    read_limit,
    refuse_limit,
)
from orchestration_queue.spark.datasource.stream import (
    EventsPartition,
    EventsPartitionReader,
    EventsReader,
    QueueStreamReader,
    cut,
    stream_tail,
)
from orchestration_queue.spark.datasource.write_options import WRITE_OPTIONS, WriteOptions
from orchestration_queue.wires.chasquimq.entries import (
    DEFAULT_GROUP,
    find_job,
    read_dead_letters,
    read_delayed,
    read_events,
    read_fields,
    read_name,
)
from orchestration_queue.wires.chasquimq.jobs import MAX_LENGTH, ChasquiJob, JobBuilder, NewChasquiJob
from orchestration_queue.wires.chasquimq.keys import LIBRARY, ChasquiKeys, ulids

if TYPE_CHECKING:
    from orchestration_queue.server import Connection
    from orchestration_queue.spark.datasource.writer import RowEncoder

__all__ = [
    "CHASQUI_WRITE_OPTIONS",
    "COLUMNS",
    "STREAM_OPTIONS",
    "ChasquiDataSource",
    "ChasquiDeadLettersReader",
    "ChasquiEventsReader",
    "ChasquiJobsReader",
    "ChasquiReadOptions",
    "ChasquiReader",
    "ChasquiReadyJobsReader",
    "chasqui_address",
]

_ADDRESS_OPTIONS = tuple(name for name in ADDRESS_OPTIONS if name != "prefix")
_READ_OPTIONS = (*_ADDRESS_OPTIONS, "read", "columns", "numPartitions", "limit")
STREAM_OPTIONS = (*_READ_OPTIONS, "startingOffsets", "maxRowsPerTrigger", "failOnDataLoss")
CHASQUI_WRITE_OPTIONS = tuple(
    name for name in WRITE_OPTIONS if name not in ("prefix", "priority", "priorityColumn", "emitEvents")
)
_MOST_PARTS = 10_000

COLUMNS: Tables = {
    "jobs": {
        "id": Column("string"),
        "name": Column("string"),
        "state": Column("string"),
        "data": Column("string"),
        "attempt": Column("bigint"),
        "created_at": Column("timestamp"),
        "due_at": Column("timestamp"),
    },
    "events": {
        "id": Column("string"),
        "at": Column("timestamp"),
        "event": Column("string"),
        "job_id": Column("string"),
        "job_name": Column("string"),
        "fields": Column("map<string,string>"),
    },
    "dead_letters": {
        "id": Column("string"),
        "job_id": Column("string"),
        "name": Column("string"),
        "reason": Column("string"),
        "detail": Column("string"),
        "data": Column("string"),
        "added_at": Column("timestamp"),
    },
}
"""The columns of each value of the option ``read``, in order."""


@dataclass(frozen=True)
class ChasquiReadOptions:
    """What to read, and in how many parts.

    Attributes:
        address: The queue.
        read: ``jobs``, ``events`` or ``dead_letters``.
        columns: The requested columns; all when empty.
        parts: Maximum parts of a stream.
        limit: Maximum rows of a batch read; None for all.
    """

    address: QueueAddress[ChasquiKeys]
    read: str
    columns: tuple[str, ...]
    parts: int
    limit: int | None

    @classmethod
    def of(cls, given: SourceOptions, parts: int) -> ChasquiReadOptions:
        """Read them from Spark's options; ``parts`` is the default of ``numPartitions``.

        Raises:
            UsageError: One is outside its limits.
        """
        return cls(
            address=chasqui_address(given),
            read=given.choice("read", tuple(COLUMNS), "jobs"),
            columns=tuple(given.names("columns")),
            parts=given.count("numPartitions", parts, _MOST_PARTS) or parts,
            limit=read_limit(given),
        )


def chasqui_address(given: SourceOptions) -> QueueAddress[ChasquiKeys]:
    """Read the queue's address from the options.

    Raises:
        UsageError: No queue is named, or the URL is invalid or contains a password.
    """
    return QueueAddress.of(given, ChasquiKeys, (LIBRARY,))


class ChasquiReader(EventsPartitionReader):
    """Reads ranges of one of the queue's streams."""

    tables = COLUMNS

    def __init__(self, options: ChasquiReadOptions, schema: StructType, *, watches_losses: bool = False) -> None:
        super().__init__(options, schema, watches_losses=watches_losses)
        self._keys = options.address.keys


class ChasquiEventsReader(ChasquiReader):
    """Reads ranges of the events."""

    kept = "about the last 100,000"

    def _rows(self, entries: list[Reply]) -> Iterator[dict[str, Any]]:
        for event in read_events([(b"", entries)]):
            yield {
                "id": event.id,
                "at": event.at,
                "event": event.type,
                "job_id": event.job_id,
                "job_name": event.job_name or None,
                "fields": [*event.fields.items()],
            }


class ChasquiDeadLettersReader(ChasquiReader):
    """Reads ranges of the dead-letter queue."""

    _can_lose = False  # entries are replayed and removed while they are read

    @property
    def stream(self) -> str:
        """The stream's key."""
        return self._keys.dead_letters

    def _rows(self, entries: list[Reply]) -> Iterator[dict[str, Any]]:
        for letter in read_dead_letters(entries):
            data = None if letter.job_id is None else _to_json(letter.data)
            yield {name: data if name == "data" else getattr(letter, name) for name in self._columns}


class ChasquiReadyJobsReader(ChasquiReader):
    """Reads ranges of the jobs that are ready or running."""

    _can_lose = False  # workers remove the entries of jobs that have ended

    @property
    def stream(self) -> str:
        """The stream's key."""
        return self._keys.stream

    def _batches(self, connection: Connection, entries: list[Reply], schema: pa.Schema, /) -> Iterator[pa.RecordBatch]:
        if not entries:
            return
        ends = text(entries[0][0]), text(entries[-1][0])
        call = Call("XPENDING", (self.stream,), (DEFAULT_GROUP, *ends, len(entries)))
        try:
            running = {row[0] for row in connection.execute(call, repeatable=True)}
        except ServerError as error:
            if error.code != "NOGROUP":
                raise
            running = set()  # no worker has ever served the queue
        rows = []
        for entry_id, flat in entries:
            fields = read_fields(flat)
            if job := find_job(self._keys.queue, read_name(fields), fields.get(b"d", b"")):
                rows.append(self._row(job, "running" if entry_id in running else "ready", None))
        yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _row(self, job: ChasquiJob, state: str, due_at: datetime | None) -> dict[str, Any]:
        row = {
            "id": job.id,
            "name": job.name,
            "state": state,
            "data": _to_json(job.data),
            "attempt": job.attempt,
            "created_at": job.created_at,
            "due_at": due_at,
        }
        return {name: row[name] for name in self._columns}

    def read_delayed(self) -> Iterator[pa.RecordBatch]:
        """Yield the delayed jobs by their time, 1,000 per page."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        keys = self._keys
        with self._options.address.connect() as connection:
            # Pages by score and ties, not by rank: ranks shift when jobs are promoted meanwhile.
            score, seen = "-inf", 0
            while True:
                args = (score, "+inf", "BYSCORE", "LIMIT", seen, BATCH_SIZE, "WITHSCORES")
                reply = connection.execute(Call("ZRANGE", (keys.delayed,), args), repeatable=True)
                if not reply:
                    return
                rows = [self._row(job, "delayed", due) for due, job in read_delayed(keys.queue, reply)]
                yield pa.RecordBatch.from_pylist(rows, schema=schema)
                scores = reply[1::2]
                last = text(scores[-1])
                ties = sum(text(found) == last for found in scores)
                score, seen = last, ties + (seen if last == score else 0)


class _DelayedJobs(InputPartition):
    """All delayed jobs."""


class ChasquiJobsReader(DataSourceReader):
    """Reads the jobs that are ready, running or delayed. One that changes its state may appear twice, or not at all."""

    def __init__(self, options: ChasquiReadOptions, reader: ChasquiReadyJobsReader) -> None:
        self._options = options
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        """Divide the stream into parts of equal time; the delayed jobs are one more. One exchange."""
        with self._options.address.connect() as connection:
            tail = stream_tail(connection, self._reader.stream)
        first = partitions.before(tail.oldest) if tail.oldest else event_log.FIRST_EVENT
        return [_DelayedJobs(None), *cut(Position(first, None), tail.last.id, self._options.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part."""
        if isinstance(partition, EventsPartition):
            yield from self._reader.read(partition)
        elif isinstance(partition, _DelayedJobs):
            yield from self._reader.read_delayed()


def _to_json(data: Any) -> str:
    """Return data as JSON; bytes become base64, other values that JSON lacks become text."""
    return json.dumps(data, ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)


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
            return ChasquiJobsReader(options, ChasquiReadyJobsReader(options, schema))
        of_stream = ChasquiEventsReader if options.read == "events" else ChasquiDeadLettersReader
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
