"""Batch reads of a queue's jobs, results and dead letters, in parts that executors read page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import compress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.protocol.call import BATCH_SIZE, Call, chunks, text, together
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import (
    dead_letters,
    event_log,
    job_records,
    partitions,
    queue_settings,
    steps,
)
from orchestration_queue.protocol.operations.partitions import CUTTABLE, Partition
from orchestration_queue.spark.datasource.columns import COLUMNS, chosen, column_array
from orchestration_queue.spark.datasource.options import (
    ADDRESS_OPTIONS,
    QueueAddress,
    SourceOptions,
    own_keys,
    read_limit,
)
from orchestration_queue.states import JobState

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = [
    "READ_OPTIONS",
    "DeadLettersReader",
    "JobsReader",
    "PushingJobsReader",
    "ReadOptions",
    "StepsReader",
    "jobs_batches",
]

READ_OPTIONS = (
    *(*ADDRESS_OPTIONS, "read", "states", "columns"),
    *("numPartitions", "pushFilters", "limit", "deadLetterQueue"),
)
_MOST_PARTS = 10_000


@dataclass(frozen=True)
class ReadOptions:
    """What to read, and in how many parts.

    Attributes:
        address: The queue.
        read: ``jobs``, ``results``, ``steps``, ``events``, ``dead_letters`` or ``statistics``.
        columns: The requested columns; all when empty.
        states: For jobs and steps, the states of the jobs to read.
        parts: Maximum parts of each state, or of the stream.
        push_filters: Skip states and times that Spark's filters exclude.
        limit: Maximum rows of a batch read; None for all.
        dead_letter_queue: The dead-letter queue; None reads it from the queue's settings.
    """

    address: QueueAddress[QueueKeys]
    read: str
    columns: tuple[str, ...]
    states: tuple[JobState, ...]
    parts: int
    push_filters: bool
    limit: int | None
    dead_letter_queue: str | None

    @classmethod
    def of(cls, given: SourceOptions, parts: int) -> ReadOptions:
        """Read them from Spark's options; ``parts`` is the default of ``numPartitions``.

        Raises:
            UsageError: An option is invalid.
        """
        read = given.choice("read", tuple(COLUMNS), "jobs")
        columns = tuple(given.names("columns"))
        limit = read_limit(given)
        push_filters = given.flag("pushFilters", False)
        if limit and push_filters:
            raise InvalidOptionError(
                "Options limit and pushFilters exclude each other, because limit counts rows before filters apply; "
                "pass one of them."
            )
        return cls(
            address=QueueAddress.of(given, own_keys(given)),
            read=read,
            columns=columns,
            states=_states(given, read),
            parts=given.count("numPartitions", parts, _MOST_PARTS) or parts,
            push_filters=push_filters,
            limit=limit,
            dead_letter_queue=given.text("deadLetterQueue"),
        )


def _states(given: SourceOptions, read: str) -> tuple[JobState, ...]:
    names = given.names("states")
    if names and read not in ("jobs", "steps"):
        raise InvalidOptionError(f"Option states applies to read=jobs and read=steps, got read={read}; remove it.")
    for name in names:
        if name not in CUTTABLE:
            raise InvalidOptionError(
                f"Option states must name states of which the queue keeps lists, got {name!r}; "
                f"use {', '.join(CUTTABLE)}."
            )
    if read == "results":
        return (JobState.COMPLETED,)
    return tuple(JobState(name) for name in dict.fromkeys(names)) or CUTTABLE


@dataclass
class JobsPartition(InputPartition):
    """A range of the jobs of one state."""

    extent: Partition


@dataclass
class DeadLettersPartition(InputPartition):
    """A range of the entries of the dead-letter queue."""

    queue: str
    after: str
    until: str


class JobsReader(DataSourceReader):
    """Reads jobs by their states.

    A job that keeps its state while being read appears once. One that changes its state may appear twice, or not at
    all, because a queue has no snapshots.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = chosen(options.read, schema)
        self._states = options.states
        self._since_ms = 0

    def partitions(self) -> list[InputPartition]:
        """Divide the lists of the requested states: about two exchanges for each."""
        keys, options = self._options.address.keys, self._options
        found: list[Partition] = []
        with options.address.connect() as connection:
            for state in self._states:
                found += connection.follow(partitions.divide(keys, state, options.parts))
        if self._since_ms:
            found = [narrowed for extent in found if (narrowed := _since(extent, self._since_ms))]
        return [JobsPartition(extent) for extent in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the jobs of a partition, about 1,000 per two exchanges."""
        if not isinstance(partition, JobsPartition):  # Spark passes a placeholder when there is no part
            return
        with self._options.address.connect() as connection:
            cursor = None
            while True:
                ids, cursor = connection.follow(partitions.page(self._options.address.keys, partition.extent, cursor))
                yield from self._batches(connection, ids)
                if cursor is None:
                    return

    def _batches(self, connection: Connection, ids: list[str]) -> Iterator[pa.RecordBatch]:
        fields = [column.field for column in self._columns.values()]
        schema = to_arrow_schema(self._schema, timezone="UTC")
        yield from jobs_batches(connection, self._options.address.keys, ids, fields, schema, self._options.limit)


_JOBS_PER_EXCHANGE = 20
"""Jobs whose steps are read together: a job has up to 10,000."""


class StepsReader(JobsReader):
    """Reads the durable steps of jobs, without their results: the first 500 of 20 jobs per exchange."""

    def _batches(self, connection: Connection, ids: list[str]) -> Iterator[pa.RecordBatch]:
        keys, schema = self._options.address.keys, to_arrow_schema(self._schema, timezone="UTC")
        for some in chunks(ids, BATCH_SIZE):
            names, counts = connection.follow(job_records.columns(keys, some, ("name", steps.COUNTER)))
            having = [
                (job_id, text(name or b"")) for job_id, name, count in zip(some, names, counts, strict=True) if count
            ]
            for jobs in chunks(having, _JOBS_PER_EXCHANGE):
                read = connection.follow(together([steps.read_steps(keys, job_id) for job_id, _ in jobs]))
                rows = [self._row(*job, step) for job, found in zip(jobs, read, strict=True) for step in found]
                for part in chunks(rows, self._options.limit or BATCH_SIZE):
                    yield pa.RecordBatch.from_pylist(part, schema=schema)

    def _row(self, job_id: str, job_name: str, step: steps.JobStep) -> dict[str, Any]:
        known = {"job_id": job_id, "job_name": job_name, "duration_s": step.duration.total_seconds()}
        return {name: known[name] if name in known else getattr(step, name) for name in self._columns}


class PushingJobsReader(JobsReader):
    """Reads jobs, and skips those that Spark's filters by state and finish time exclude."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Use the filters that save reads. Spark applies all of them again, since jobs move while they are read."""
        for given in filters:
            match given:
                case EqualTo(("state",), value):
                    self._keep({value})
                case In(("state",), values):
                    self._keep(set(values))
                case GreaterThan(("finished_at",), value) | GreaterThanOrEqual(("finished_at",), value):
                    self._limit_to_finished(value)
            yield given

    def _keep(self, wanted: set[Any]) -> None:
        self._states = tuple(state for state in self._states if str(state) in wanted)

    def _limit_to_finished(self, value: object) -> None:
        if isinstance(value, datetime) and value.tzinfo is not None:
            self._since_ms = max(self._since_ms, int(value.timestamp() * 1000))
            self._keep({str(JobState.COMPLETED), str(JobState.FAILED)})


def _since(extent: Partition, since_ms: int) -> Partition | None:
    """Return the part of a range of finished jobs that ended at a time or later; None without any."""
    if float(extent.until) < since_ms:
        return None
    return extent if float(extent.after) >= since_ms else replace(extent, after=str(since_ms - 1))


def jobs_batches(
    connection: Connection,
    keys: QueueKeys,
    ids: list[str],
    fields: list[str],
    schema: pa.Schema,
    most: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield jobs' records as batches of a schema, with at most ``most`` rows each; removed jobs are left out."""
    for some in chunks(ids, min(most or BATCH_SIZE, BATCH_SIZE)):
        present, *columns = connection.follow(job_records.columns(keys, some, ("id", *fields)))
        if None in present:
            columns = [list(compress(values, present)) for values in columns]
        if rows := len(present) - present.count(None):
            arrays = [column_array(values, wanted) for values, wanted in zip(columns, schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else _bare(rows)


def _bare(count: int) -> pa.RecordBatch:
    """Return rows without columns, as ``count()`` needs them."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


class DeadLettersReader(DataSourceReader):
    """Reads the dead letters of a queue."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = chosen(options.read, schema)

    def partitions(self) -> list[InputPartition]:
        """Divide the dead-letter queue's stream, in up to three exchanges."""
        address, options = self._options.address, self._options
        with address.connect() as connection:
            queue = options.dead_letter_queue or connection.run(
                queue_settings.stored_dead_letter_queue(address.keys), repeatable=True
            )
            if queue is None:
                return []
            keys = QueueKeys(queue, address.keys.prefix)
            last = connection.follow(dead_letters.last_entry(keys))
            oldest = connection.execute(Call("XRANGE", (keys.stream,), ("-", "+", "COUNT", 1)), repeatable=True)
        if last is None:
            return []
        first = partitions.before(text(oldest[0][0])) if oldest else event_log.FIRST_EVENT
        return [DeadLettersPartition(queue, *cut) for cut in partitions.cut_entries(first, last, options.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the dead letters of a partition, 200 entries per two exchanges."""
        if not isinstance(partition, DeadLettersPartition):  # Spark passes a placeholder when there is no part
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        keys = QueueKeys(partition.queue, self._options.address.keys.prefix)
        after: str | None = partition.after
        with self._options.address.connect() as connection:
            while after is not None:
                page = dead_letters.dead_letter_page(keys, self._options.address.keys.queue, after, partition.until)
                found = connection.follow(page)
                after = found.after
                rows = [self._row(letter) for letter in found.letters]
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _row(self, letter: dead_letters.DeadLetter) -> dict[str, Any]:
        return {name: dump_json(letter.data) if name == "data" else getattr(letter, name) for name in self._columns}
