"""A limit on the rows of a batch read: Spark has no limit that it could push to a data source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition

from orchestration_queue.errors import InvalidOptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestration_queue.spark.datasource.options import SourceOptions

__all__ = ["limit_rows", "read_limit", "refuse_limit"]

_MOST_ROWS = 1_000_000


def read_limit(given: SourceOptions) -> int | None:
    """Return the option ``limit``: the maximum rows of a batch read; None for all.

    Raises:
        UsageError: It is not an integer from 1 to 1,000,000.
    """
    return given.count("limit", None, _MOST_ROWS)


def limit_rows(reader: DataSourceReader, limit: int | None) -> DataSourceReader:
    """Return a reader of at most ``limit`` rows; without a limit, the same reader."""
    return LimitedReader(reader, limit) if limit else reader


def refuse_limit(limit: int | None) -> None:
    """Raise an InvalidOptionError if a stream has the option ``limit``."""
    if limit:
        raise InvalidOptionError("Option limit applies to batch reads only; use maxRowsPerTrigger for a stream.")


@dataclass
class AllPartitions(InputPartition):
    """All partitions of another reader, for one task."""

    each: Sequence[InputPartition]


class LimitedReader(DataSourceReader):
    """Reads the first rows of another reader, in one task, and stops after the batch with the last one.

    Args:
        reader: Yields record batches.
        limit: Maximum rows.
    """

    def __init__(self, reader: DataSourceReader, limit: int) -> None:
        self._reader = reader
        self._limit = limit

    def partitions(self) -> list[InputPartition]:
        """Return one partition, which contains all of the other reader."""
        return [AllPartitions(self._reader.partitions())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield batches up to the limit."""
        left = self._limit
        for each in cast(AllPartitions, partition).each:
            for batch in cast("Iterator[pa.RecordBatch]", self._reader.read(each)):
                yield batch[:left]
                left -= batch.num_rows
                if left <= 0:
                    return
