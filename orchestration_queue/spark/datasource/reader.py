"""Reading a queue once: its jobs, results, events or dead letters, in parts that executors read page by page."""

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
from orchestration_queue.protocol.call import BATCH_SIZE, Call, chunks, text
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import dead_letters, event_log, job_records, partitions, queue_settings
from orchestration_queue.protocol.operations.partitions import CUTTABLE, Partition
from orchestration_queue.spark.datasource.columns import COLUMNS, chosen, column_array
from orchestration_queue.spark.datasource.limit import read_limit
from orchestration_queue.spark.datasource.options import ADDRESS_OPTIONS, QueueAddress, SourceOptions, own_keys
from orchestration_queue.states import JobState

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = ["READ_OPTIONS", "DeadLettersReader", "JobsReader", "PushingJobsReader", "ReadOptions", "jobs_batches"]

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
        read: ``jobs``, ``results``, ``events``, ``dead_letters`` or ``statistics``.
        columns: The columns wanted; all when empty.
        states: For jobs, the states they are in.
        parts: Into how many parts each state, or the stream, is cut at most.
        push_filters: Let Spark's filters spare the reading of other states and times.
        limit: The most rows of a batch read; None for all.
        dead_letter_queue: Where the dead letters are; None asks the queue.
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
            UsageError: One is out of its limits.
        """
        read = given.choice("read", tuple(COLUMNS), "jobs")
        columns = tuple(given.names("columns"))
        limit = read_limit(given)
        push_filters = given.flag("pushFilters", False)
        if limit and push_filters:
            raise InvalidOptionError(
                "The option limit counts rows before conditions apply, and pushFilters lets conditions choose them; "
                "give either."
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
    if names and read != "jobs":
        raise InvalidOptionError(f"The option states is about jobs, and this reads {read}; drop it.")
    for name in names:
        if name not in CUTTABLE:
            raise InvalidOptionError(
                f"The option states names {name!r}, of which the wire keeps no list; use {', '.join(CUTTABLE)}."
            )
    if read == "results":
        return (JobState.COMPLETED,)
    return tuple(JobState(name) for name in dict.fromkeys(names)) or CUTTABLE


@dataclass
class JobsPartition(InputPartition):
    """Some of the jobs of one state."""

    extent: Partition


@dataclass
class DeadLettersPartition(InputPartition):
    """Some of the entries of the dead-letter queue."""

    queue: str
    after: str
    until: str


class JobsReader(DataSourceReader):
    """Reads jobs by their states.

    A job that stays in its state while being read comes once. One that moves on meanwhile may come from both states,
    or from neither: there is no snapshot of a queue.
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
        if not isinstance(partition, JobsPartition):  # what Spark passes when there is no part
            return
        keys, fields = self._options.address.keys, [column.field for column in self._columns.values()]
        schema = to_arrow_schema(self._schema, timezone="UTC")
        with self._options.address.connect() as connection:
            cursor = None
            while True:
                ids, cursor = connection.follow(partitions.page(keys, partition.extent, cursor))
                yield from jobs_batches(connection, keys, ids, fields, schema, self._options.limit)
                if cursor is None:
                    return


class PushingJobsReader(JobsReader):
    """Likewise, but what Spark filters by state and time of the end is not even read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Take what helps. Spark is told to filter by all of them nevertheless, for jobs move while they are read."""
        for given in filters:
            match given:
                case EqualTo(("state",), value):
                    self._keep({value})
                case In(("state",), values):
                    self._keep(set(values))
                case GreaterThan(("finished_at",), value) | GreaterThanOrEqual(("finished_at",), value):
                    self._finished_since(value)
            yield given

    def _keep(self, wanted: set[Any]) -> None:
        self._states = tuple(state for state in self._states if str(state) in wanted)

    def _finished_since(self, value: object) -> None:
        if isinstance(value, datetime) and value.tzinfo is not None:
            self._since_ms = max(self._since_ms, int(value.timestamp() * 1000))
            self._keep({str(JobState.COMPLETED), str(JobState.FAILED)})


def _since(extent: Partition, since_ms: int) -> Partition | None:
    """Return those of a part of finished jobs that ended at that time or later; the list is ordered by it."""
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
    """Yield the records of jobs, as batches of the given schema, of ``most`` rows; jobs that are gone are left out."""
    for some in chunks(ids, min(most or BATCH_SIZE, BATCH_SIZE)):
        present, *columns = connection.follow(job_records.columns(keys, some, ("id", *fields)))
        if None in present:
            columns = [list(compress(values, present)) for values in columns]
        if rows := len(present) - present.count(None):
            arrays = [column_array(values, wanted) for values, wanted in zip(columns, schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else _bare(rows)


def _bare(count: int) -> pa.RecordBatch:
    """Rows without columns, as ``count()`` needs them."""
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
        if not isinstance(partition, DeadLettersPartition):  # what Spark passes when there is no part
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        keys = QueueKeys(partition.queue, self._options.address.keys.prefix)
        after: str | None = partition.after
        with self._options.address.connect() as connection:
            while after is not None:
                steps = dead_letters.dead_letter_page(keys, self._options.address.keys.queue, after, partition.until)
                found = connection.follow(steps)
                after = found.after
                rows = [self._row(letter) for letter in found.letters]
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _row(self, letter: dead_letters.DeadLetter) -> dict[str, Any]:
        return {name: dump_json(letter.data) if name == "data" else getattr(letter, name) for name in self._columns}
