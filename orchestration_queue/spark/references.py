"""References to stored DataFrames: jobs exchange the location of the rows through the queue, not the rows.

Nothing here imports PySpark before there is a session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from pydantic import NonNegativeInt

from orchestration_queue.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrameRef", "references_in", "replace_each", "segment"]


class DataFrameRef(Options):
    """A reference to a stored DataFrame, which a job returns in its place."""

    kind: Literal["dataframe"] = "dataframe"
    """Marks JSON as a reference."""
    format: Literal["parquet", "orc", "delta", "table"] = "parquet"
    """How to read it."""
    location: str
    """The directory or URI of the files, or the table's name."""
    columns: dict[str, str]
    """Each column's type, as Spark's short name, in order."""
    rows: NonNegativeInt
    """The number of rows."""
    bytes: NonNegativeInt | None = None
    """The size of the files; None for a table."""
    inputs: tuple[str, ...] = ()
    """Its sources: directories of files, and locations of other references; at most 100."""

    def load(self, spark: SparkSession) -> DataFrame:
        """Load the DataFrame in a session."""
        return (
            spark.table(self.location) if self.format == "table" else spark.read.format(self.format).load(self.location)
        )

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """Return a reference from its JSON, as in a job's result.

        Raises:
            InvalidOptionError: It is not the JSON of a reference.
        """
        return cls.coerce(obj, "reference")

    @classmethod
    def of_table(cls, spark: SparkSession, name: str) -> DataFrameRef:
        """Return a reference to an existing table, for a task that wrote it itself."""
        table = spark.table(name)
        return cls(format="table", location=name, columns=dict(table.dtypes), rows=table.count())


def references_in(value: object) -> list[DataFrameRef]:
    """Return the references in a value: itself, or those in its containers."""
    found: list[DataFrameRef] = []
    replace_each(value, DataFrameRef, lambda _, ref: found.append(ref))
    return found


def replace_each(value: Any, kind: Any, replace: Callable[[str, Any], Any], path: str = "") -> Any:
    """Return a value with all of a type replaced, in lists, tuples and dicts; ``replace`` receives the path of each."""
    if isinstance(value, kind):
        return replace(path, value)
    if isinstance(value, dict):
        return {key: replace_each(item, kind, replace, _below(path, str(key))) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(replace_each(item, kind, replace, _below(path, str(at))) for at, item in enumerate(value))
    return value


def _below(path: str, name: str) -> str:
    return f"{path}/{segment(name)}" if path else segment(name)


def segment(name: str) -> str:
    """Return a name encoded as one segment of a path."""
    return "%2E" * len(name) if set(name) == {"."} else quote(name, safe="")
