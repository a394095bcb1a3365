"""The data source: which reader Spark gets for which options."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from orchestration_queue.spark.datasource.columns import ddl
from orchestration_queue.spark.datasource.limit import limit_rows
from orchestration_queue.spark.datasource.options import SourceOptions
from orchestration_queue.spark.datasource.qless.reader import COLUMNS, READ_OPTIONS, QlessReader, QlessReadOptions

__all__ = ["QlessDataSource"]


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
