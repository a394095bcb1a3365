"""DataFrames on their way from one job to the next: the rows stay where they are, the queue carries where that is.

Nothing here imports PySpark before there is a session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, NonNegativeInt, TypeAdapter

from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.spark.annotations import dataframe_parameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrameRef", "ResultLocation", "call_with_frames", "references_in", "segment"]


class DataFrameRef(BaseModel):
    """Where a DataFrame is, and what it is: what a job returns in its place."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["dataframe"] = "dataframe"
    """By which others know a reference when they see one."""
    format: Literal["parquet", "orc", "delta", "table"] = "parquet"
    """How to read it."""
    location: str
    """The directory or URI of the files, or the table's name."""
    columns: dict[str, str]
    """Each column's type, in Spark's short words, in order."""
    rows: NonNegativeInt
    """How many."""
    bytes: NonNegativeInt | None = None
    """What the files hold; None for a table."""
    inputs: tuple[str, ...] = ()
    """What it was made from: directories of files, and other references' locations; at most 100."""

    def load(self, spark: SparkSession) -> DataFrame:
        """The DataFrame, in a session."""
        return (
            spark.table(self.location) if self.format == "table" else spark.read.format(self.format).load(self.location)
        )

    @classmethod
    def of_table(cls, spark: SparkSession, name: str) -> DataFrameRef:
        """A reference to a table that is there: to be returned by a task that has written it itself."""
        table = spark.table(name)
        return cls(format="table", location=name, columns=dict(table.dtypes), rows=table.count())


@dataclass(frozen=True, slots=True)
class ResultLocation:
    """Where a job's DataFrames are written, and as what.

    Attributes:
        root: A directory, or a URI of any file system that Spark knows.
        queue: The job's queue.
        job: The job's id.
        format: Format of the files.
        partition_by: Columns whose values become directories.
        files: Write at most this many files, or this many per partition directory; None leaves it to Spark.
        may_commit: Asked before the files take the place of an earlier attempt's.
    """

    root: str
    queue: str
    job: str
    format: Literal["parquet", "orc", "delta"] = "parquet"
    partition_by: tuple[str, ...] = ()
    files: int | None = None
    may_commit: Callable[[], bool] = lambda: True

    @property
    def location(self) -> str:
        """The directory, the same for each attempt: one replaces the other."""
        return f"{self.root.rstrip('/')}/{segment(self.queue)}/{segment(self.job)}"

    def to_json(self) -> dict[str, Any]:
        """Return it for another process, which cannot ask ``may_commit``."""
        fields = ("root", "queue", "job", "format", "partition_by", "files")
        return {name: getattr(self, name) for name in fields}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ResultLocation:
        """Return what :meth:`to_json` described."""
        return cls(**{**fields, "partition_by": tuple(fields["partition_by"])})


def call_with_frames(
    function: Callable[..., Any], spark: SparkSession, arguments: Mapping[str, Any], results: ResultLocation | None
) -> Any:
    """Call a function with DataFrames in place of references, and return references in place of DataFrames.

    Args:
        function: ``f(spark, **arguments)``.
        spark: The session.
        arguments: Its arguments.
        results: Where the DataFrames that it returns are written.

    Raises:
        UnrecoverableError: It returned a DataFrame, and nothing says where to write it.
    """
    given = {
        name: TypeAdapter(shape.annotate(DataFrameRef)).validate_python(arguments[name])
        for name, shape in dataframe_parameters(function).items()
        if arguments.get(name) is not None
    }
    loaded = {name: _replace(value, DataFrameRef, lambda _, ref: ref.load(spark)) for name, value in given.items()}
    result = _replace(
        function(spark, **{**arguments, **loaded}), _row_type(), lambda _, row: row.asDict(recursive=True)
    )
    frames = _collect_frames(result)
    if not frames:
        return result
    if results is None:
        raise UnrecoverableError(
            f"{function.__qualname__} returned a DataFrame, and nothing says where to write it; set "
            "SparkOptions(results=...) or OQ_SPARK_RESULTS to a directory or URI that every worker reaches."
        )
    from orchestration_queue.spark.result_files import write_results  # its imports are not needed without a DataFrame

    inputs = [ref.location for value in given.values() for ref in references_in(value)]
    written = write_results(spark, frames, results, inputs)
    return _replace(result, _frame_type(), lambda path, _: written[path])


def references_in(value: object) -> list[DataFrameRef]:
    """Return the references in a value: itself, or those in its containers."""
    found: list[DataFrameRef] = []
    _replace(value, DataFrameRef, lambda _, ref: found.append(ref))
    return found


def _collect_frames(result: object) -> dict[str, DataFrame]:
    found: dict[str, DataFrame] = {}
    _replace(result, _frame_type(), found.__setitem__)
    return found


def _frame_type() -> Any:
    from pyspark.sql import DataFrame

    return DataFrame


def _row_type() -> Any:
    from pyspark.sql import Row

    return Row


def _replace(value: Any, kind: Any, replace: Callable[[str, Any], Any], path: str = "") -> Any:
    """Return a value with all of a type replaced, in lists, tuples and dicts; ``path`` says where each one is."""
    if isinstance(value, kind):
        return replace(path, value)
    if isinstance(value, dict):
        return {key: _replace(item, kind, replace, _below(path, str(key))) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replace(item, kind, replace, _below(path, str(at))) for at, item in enumerate(value))
    return value


def _below(path: str, name: str) -> str:
    return f"{path}/{segment(name)}" if path else segment(name)


def segment(name: str) -> str:
    """Any name as one step of a path."""
    return "%2E" * len(name) if set(name) == {"."} else quote(name, safe="")
