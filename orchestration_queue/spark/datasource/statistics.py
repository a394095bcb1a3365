"""Reading a queue's statistics: a row per day and task."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orchestration_queue.protocol.operations import statistics
from orchestration_queue.protocol.statistics import Distribution, TaskStatistics
from orchestration_queue.spark.datasource.columns import chosen
from orchestration_queue.spark.datasource.reader import ReadOptions

__all__ = ["StatisticsReader"]

_KEPT_DAYS = 30


class StatisticsReader(DataSourceReader):
    """Reads the statistics of the days that are kept."""

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
            **_seconds("wait", task.wait),
            **_seconds("run", task.run),
        }
        return {column: known[column] for column in self._columns}


def _seconds(what: str, spread: Distribution) -> dict[str, float]:
    parts = ("mean", "deviation", "p50", "p90", "p99")
    return {f"{what}_{part}_s": getattr(spread, part).total_seconds() for part in parts}
