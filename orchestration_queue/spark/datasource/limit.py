"""A limit on the rows of a batch read: Spark has no limit that it could push to a data source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LimitedReader"]


@dataclass
class AllPartitions(InputPartition):
    """The partitions of another reader, for one task."""

    each: Sequence[InputPartition]


class LimitedReader(DataSourceReader):
    """Reads the first rows that another reader finds, in one task, and nothing beyond the batch that has the last.

    Args:
        reader: Yields record batches.
        limit: The most rows.
    """

    def __init__(self, reader: DataSourceReader, limit: int) -> None:
        self._reader = reader
        self._limit = limit

    def partitions(self) -> list[InputPartition]:
        """Return one, of all that the reader has."""
        return [AllPartitions(self._reader.partitions())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read until there are enough."""
        left = self._limit
        for each in cast(AllPartitions, partition).each:
            for batch in cast("Iterator[pa.RecordBatch]", self._reader.read(each)):
                yield batch[:left]
                left -= batch.num_rows
                if left <= 0:
                    return
