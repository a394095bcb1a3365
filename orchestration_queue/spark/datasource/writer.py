"""Write each row as one job, even if Spark retries a task: the job's id is made from the row."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from orchestration_queue._logging import get_logger
from orchestration_queue.client.values import encode_data
from orchestration_queue.errors import InvalidOptionError, PayloadError
from orchestration_queue.options import JobOptions
from orchestration_queue.options.base import MAX_NAME_LENGTH
from orchestration_queue.protocol.functions.oq1 import NewJob
from orchestration_queue.protocol.operations import additions
from orchestration_queue.protocol.placement import JobEncoder
from orchestration_queue.server.clock import now_ms
from orchestration_queue.spark.datasource.write_options import WriteOptions

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = ["AddRows", "QueueStreamWriter", "QueueWriter", "RowEncoder", "job_id"]

_ODD = "[%:{}\\x00-\\x1f\\x7f]"
_HASH_LENGTH = 32
_ENCODERS = 1024
"""Number of cached encoders, one for each pair of priority and delay."""


def job_id(prefix: str, key: str) -> str:
    """Return the id of a row's job: the prefix followed by the row's key.

    Characters that the wire does not allow are escaped as in a URL (``%3A``); a long key is replaced by its hash.
    """
    written = f"{prefix}{re.sub(_ODD, lambda odd: f'%{ord(odd[0]):02X}', key)}"
    if len(written) <= MAX_NAME_LENGTH:
        return written
    return f"{prefix[: MAX_NAME_LENGTH - _HASH_LENGTH]}{hashlib.sha256(written.encode()).hexdigest()[:_HASH_LENGTH]}"


class RowEncoder:
    """Converts the rows of one task to jobs.

    Args:
        options: How to convert them.
        origin: Prefix for ids of rows without a key: where this task's rows come from.
    """

    def __init__(self, options: WriteOptions, origin: str) -> None:
        self._options = options
        self._origin = origin
        self._count = 0
        self._encoder = lru_cache(_ENCODERS)(self._build_encoder)

    def _build_encoder(self, priority: int | None, delay_s: float | None) -> JobEncoder:
        said: dict[str, Any] = {}
        if priority is not None:
            said["priority"] = priority
        if delay_s is not None:
            said["delay"] = timedelta(seconds=delay_s)
        common = self._options.options
        options = JobOptions(**common.model_dump(exclude_unset=True) | said) if said else common
        return JobEncoder.of(options, 0)

    def jobs(self, batch: pa.RecordBatch, now_ms: int) -> list[NewJob]:
        """Return the jobs of the next rows.

        Raises:
            UsageError: A row has no key or no task, or an invalid payload, priority or delay.
        """
        names, ids, texts, places = self.columns(batch)
        rows = zip(names, texts, ids, places, strict=True)
        return [self._encoder(*place).job(name, data, job, now_ms) for name, data, job, place in rows]

    def columns(self, batch: pa.RecordBatch) -> tuple[list[str], list[str], list[str], list[tuple[Any, Any]]]:
        """Return the names, ids, JSON payloads, and pairs of priority and delay in seconds of the next rows' jobs.

        Raises:
            UsageError: A row has no key or no task, or a value that JSON cannot represent.
        """
        options, count = self._options, batch.num_rows
        names = [options.task] * count if options.task else _present(batch, "taskColumn", options.task_column)
        ids, texts = self._ids(batch, names), self._payloads(batch, names)
        if options.priority_column is None and options.delay_column is None:
            return names, ids, texts, [(None, None)] * count
        places = zip(_values(batch, options.priority_column), _values(batch, options.delay_column), strict=True)
        return names, ids, texts, list(places)

    def _ids(self, batch: pa.RecordBatch, names: Sequence[str]) -> list[str]:
        if self._options.id_column is None:
            first, self._count = self._count, self._count + batch.num_rows
            numbers: Iterable[str] = map(str, range(first, self._count))
            return [
                job_id(self._prefix(name) + self._origin, number) for name, number in zip(names, numbers, strict=True)
            ]
        keys = _present(batch, "idColumn", self._options.id_column)
        column = batch.column(self._options.id_column).cast(pa.string())
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        prefix = self._prefix(names[0]) if self._options.task or self._options.id_prefix else None
        is_plain = prefix is not None and longest + len(prefix) <= MAX_NAME_LENGTH
        if is_plain and not pc.any(pc.match_substring_regex(column, _ODD)).as_py():
            return [f"{prefix}{key}" for key in keys]
        return [job_id(self._prefix(name), str(key)) for name, key in zip(names, keys, strict=True)]

    def _prefix(self, name: str) -> str:
        return self._options.id_prefix or f"{job_id('', name)}-"

    def _payloads(self, batch: pa.RecordBatch, names: Sequence[str]) -> list[str]:
        if self._options.payload_column is not None:
            texts = _present(batch, "payloadColumn", self._options.payload_column)
            return [_encode_payload(name, text) for name, text in zip(names, texts, strict=True)]
        columns = {name: self._values_of(batch, name) for name in self._options.payload_columns}
        keys = tuple(columns)
        rows = zip(*columns.values(), strict=True)
        return [encode_data(name, dict(zip(keys, row, strict=True))) for name, row in zip(names, rows, strict=True)]

    def _values_of(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        column = _to_json_type(batch.column(name))
        if not pa.types.is_floating(column.type):
            return list(column.to_pylist())
        finite = pc.is_finite(column)
        if not pc.all(finite, min_count=0).as_py():
            if not self._options.nan_as_null:
                row = pc.index(finite, False).as_py()
                shown = "" if self._options.id_column is None else f" of {batch.column(self._options.id_column)[row]}"
                raise PayloadError(
                    f"Column {name!r} is {column[row].as_py()} in the row{shown}, which JSON cannot represent; replace "
                    "it, or pass nanAsNull=true to write null."
                )
            column = pc.if_else(finite, column, None)
        return list(column.to_pylist())


def _values(batch: pa.RecordBatch, column: str | None) -> list[Any]:
    return [None] * batch.num_rows if column is None else list(batch.column(column).to_pylist())


def _present(batch: pa.RecordBatch, option: str, column: str | None) -> list[Any]:
    """Return a column's values, all of which must be present."""
    found = _values(batch, column)
    if any(value is None or value == "" for value in found):
        raise InvalidOptionError(
            f"Column {column!r}, which option {option} names, must not be null or empty; fill it, or filter such rows "
            "out."
        )
    return found


def _to_json_type(column: pa.Array) -> pa.Array:
    """Convert a column to a type that JSON has: times to ISO 8601, decimals to text without loss of digits."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        universal = kind.tz is not None
        naive = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")) if universal else column
        return pc.strftime(naive, "%Y-%m-%dT%H:%M:%SZ" if universal else "%Y-%m-%dT%H:%M:%S")
    if pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column


def _encode_payload(name: str, text: str) -> str:
    try:
        return encode_data(name, json.loads(text))
    except ValueError as error:
        raise PayloadError(
            f"The payload of job {name!r} must be JSON ({error}); create it with to_json(), or pass payloadColumns "
            "instead of payloadColumn."
        ) from None


_log = get_logger(__name__)


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
