"""A qless queue as a data source: its jobs, failures, completed jobs and statistics as rows."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orchestration_queue.protocol.call import Call, texts
from orchestration_queue.server.clock import now_ms
from orchestration_queue.spark.datasource.columns import Column, Tables, chosen, ddl
from orchestration_queue.spark.datasource.options import (
    ADDRESS_OPTIONS,
    QueueAddress,
    SourceOptions,
    limit_rows,
    read_limit,
)
from orchestration_queue.wires.qless.commands import LIBRARY, command, text_word
from orchestration_queue.wires.qless.records import QlessJob, QlessStats, read_jobs

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = ["COLUMNS", "READ_OPTIONS", "QlessDataSource", "QlessKeys", "QlessReadOptions", "QlessReader"]

READ_OPTIONS = (
    *(name for name in ADDRESS_OPTIONS if name != "prefix"),
    *("read", "columns", "numPartitions", "days", "limit"),
)
_PLACES = ("work", "locks", "scheduled", "depends")
_PAGE = 200
"""Jobs per command: about a millisecond of the server's time."""
_MOST_PARTS, _MOST_DAYS = 10_000, 3_660

_JOB = {
    "jid": Column("string"),
    "klass": Column("string"),
    "queue": Column("string"),
    "data": Column("string"),
    "priority": Column("double"),
    "retries": Column("bigint"),
    "remaining": Column("bigint"),
    "tags": Column("string"),
}
COLUMNS: Tables = {
    "jobs": {
        **_JOB,
        "state": Column("string"),
        "worker": Column("string"),
        "expires_at": Column("timestamp"),
        "put_at": Column("timestamp"),
        "dependencies": Column("string"),
    },
    "completed": {**_JOB, "put_at": Column("timestamp"), "completed_at": Column("timestamp")},
    "failures": {
        **_JOB,
        "group": Column("string"),
        "message": Column("string"),
        "failed_at": Column("timestamp"),
        "worker": Column("string"),
    },
    "stats": {
        "queue": Column("string"),
        "day": Column("timestamp"),
        "retries": Column("bigint"),
        "failures": Column("bigint"),
        "failed": Column("bigint"),
        "waits": Column("bigint"),
        "wait_mean_s": Column("double"),
        "wait_std_s": Column("double"),
        "runs": Column("bigint"),
        "run_mean_s": Column("double"),
        "run_std_s": Column("double"),
    },
}
"""The columns of each value of the option ``read``, in order."""


@dataclass(frozen=True)
class QlessKeys:
    """The keys of one queue.

    Raises:
        InvalidNameError: The name is empty.
    """

    queue: str

    def __post_init__(self) -> None:
        text_word(self.queue, "queue")


@dataclass(frozen=True)
class QlessReadOptions:
    """What to read, and in how many parts.

    Attributes:
        address: The queue.
        read: ``jobs``, ``completed``, ``failures`` or ``stats``.
        columns: The requested columns; all when empty.
        parts: Maximum parts of each set of jobs.
        days: For statistics, the number of days up to and including today.
        limit: Maximum rows of a batch read; None for all.
    """

    address: QueueAddress[QlessKeys]
    read: str
    columns: tuple[str, ...]
    parts: int
    days: int
    limit: int | None

    @classmethod
    def of(cls, given: SourceOptions) -> QlessReadOptions:
        """Read them from Spark's options.

        Raises:
            UsageError: One is outside its limits.
        """
        return cls(
            address=QueueAddress.of(given, QlessKeys, (LIBRARY,)),
            read=given.choice("read", tuple(COLUMNS), "jobs"),
            columns=tuple(given.names("columns")),
            parts=given.count("numPartitions", 4, _MOST_PARTS) or 4,
            days=given.count("days", 30, _MOST_DAYS) or 30,
            limit=read_limit(given),
        )


@dataclass
class Slice(InputPartition):
    """A range of the jobs in a sorted set or list.

    Attributes:
        key: The set or list.
        is_list: Whether it is a list.
        first: Rank of the first job.
        last: Rank of the last job.
    """

    key: str
    is_list: bool
    first: int
    last: int


class QlessReader(DataSourceReader):
    """Reads a queue. A job that changes its state may appear twice, or not at all."""

    def __init__(self, options: QlessReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = tuple(chosen(options.read, schema, COLUMNS))
        self._queue = options.address.keys.queue

    def partitions(self) -> list[InputPartition]:
        """Divide each set of jobs into slices of equal size. At most two exchanges."""
        if self._options.read == "stats":
            return [InputPartition(None)]
        with self._options.address.connect() as connection:
            keys = self._keys(connection)
            is_list = self._options.read == "failures"
            calls = [Call("LLEN" if is_list else "ZCARD", (key,)) for key in keys]
            sizes = connection.pipeline(calls, repeatable=True) if calls else []
        found: list[InputPartition] = []
        for key, size in zip(keys, sizes, strict=True):
            step = max(1, -(-int(size) // self._options.parts))
            found += [Slice(key, is_list, first, first + step - 1) for first in range(0, int(size), step)]
        return found

    def _keys(self, connection: Connection) -> list[str]:
        if self._options.read == "jobs":
            return [f"ql:q:{self._queue}-{place}" for place in _PLACES]
        if self._options.read == "completed":
            return ["ql:completed"]
        groups = texts(connection.execute(Call("SMEMBERS", ("ql:failures",)), repeatable=True))
        return [f"ql:f:{group}" for group in sorted(groups)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, 200 jobs per exchange."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        with self._options.address.connect() as connection:
            pages = self._jobs(connection, partition) if isinstance(partition, Slice) else self._days(connection)
            for rows in pages:
                chosen_rows = [{name: row[name] for name in self._columns} for row in rows]
                yield pa.RecordBatch.from_pylist(chosen_rows, schema=schema)

    def _jobs(self, connection: Connection, part: Slice) -> Iterator[list[dict[str, Any]]]:
        for first in range(part.first, part.last + 1, _PAGE):
            ranks = first, min(first + _PAGE - 1, part.last)
            call = Call("LRANGE" if part.is_list else "ZRANGE", (part.key,), ranks)
            jids = texts(connection.execute(call, repeatable=True))
            if not jids:
                return
            jobs = read_jobs(connection.execute(command("multiget", *jids), repeatable=True))
            rows = [self._row(job) for job in jobs]
            yield [row for row in rows if row["queue"] == self._queue]

    def _row(self, job: QlessJob) -> dict[str, Any]:
        row = {
            "jid": job.jid,
            "klass": job.klass,
            "queue": job.queue or _last_queue(job),
            "data": job.encoded,
            "priority": float(job.priority),
            "retries": job.retries,
            "remaining": job.remaining,
            "tags": ",".join(job.tags),
            "put_at": _last(job, "put"),
        }
        if self._options.read == "jobs":
            waits_for = ",".join(job.dependencies)
            row |= {"state": job.state, "worker": job.worker, "expires_at": job.expires, "dependencies": waits_for}
        elif self._options.read == "completed":
            row["completed_at"] = _last(job, "done")
        elif failure := job.failure:
            row |= {"group": failure.group, "message": failure.message, "worker": failure.worker}
            row["failed_at"] = failure.at
        else:  # it was retried after it was listed
            row["queue"] = None
        return row

    def _days(self, connection: Connection) -> Iterator[list[dict[str, Any]]]:
        today = datetime.fromtimestamp(now_ms() / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        days = [today - timedelta(days=back) for back in reversed(range(self._options.days))]
        calls = [command("stats", self._queue, day.timestamp()) for day in days]
        for day, reply in zip(days, connection.pipeline(calls, repeatable=True), strict=True):
            stats = QlessStats.read(reply)
            if stats.wait.count or stats.run.count or stats.failures or stats.retries or stats.failed:
                yield [_stats_row(self._queue, day, stats)]


def _stats_row(queue: str, day: datetime, stats: QlessStats) -> dict[str, Any]:
    return {
        "queue": queue,
        "day": day,
        "retries": stats.retries,
        "failures": stats.failures,
        "failed": stats.failed,
        "waits": stats.wait.count,
        "wait_mean_s": float(stats.wait.mean),
        "wait_std_s": float(stats.wait.std),
        "runs": stats.run.count,
        "run_mean_s": float(stats.run.mean),
        "run_std_s": float(stats.run.std),
    }


def _last(job: QlessJob, what: str) -> datetime | None:
    """Return the time of the last entry of a kind in a job's history."""
    when = next((entry["when"] for entry in reversed(job.history) if entry["what"] == what), None)
    return None if when is None else datetime.fromtimestamp(float(when), UTC)


def _last_queue(job: QlessJob) -> str | None:
    """Return the queue in which a job was completed, which only its history names."""
    return next((str(entry["q"]) for entry in reversed(job.history) if "q" in entry), None)


class QlessDataSource(DataSource):
    """A qless queue as a Spark data source, of format ``qless``. Its options are in docs/how-to/qless.md.

    Spark finds it, or you register it with ``spark.dataSource.register(QlessDataSource)``.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "qless"

    def _read_options(self) -> QlessReadOptions:
        return QlessReadOptions.of(SourceOptions(self.options, READ_OPTIONS, "reading a qless queue"))

    def schema(self) -> str:
        """Return the columns of the rows."""
        options = self._read_options()
        return ddl(options.read, options.columns, COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for the current contents of the queue."""
        options = self._read_options()
        return limit_rows(QlessReader(options, schema), options.limit)
