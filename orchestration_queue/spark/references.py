"""DataFrames on their way from one job to the next: the rows stay where they are, the queue carries where that is.

Nothing here imports PySpark before there is a session.
"""

from __future__ import annotations

import inspect
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from orchestration_queue.errors import SparkCancelledError, UnrecoverableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "DataFrameRef",
    "ResultLocation",
    "call_with_frames",
    "dataframe_parameters",
    "returns_dataframe",
    "segment",
    "write_new",
]

_MOST_INPUTS = 100
_NAMES = frozenset({"DataFrame", "sql.DataFrame", "pyspark.sql.DataFrame"})
_IS_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DRAFTS = ".drafts"


class DataFrameRef(BaseModel):
    """Where a DataFrame is, and what it is: what a job returns in its place."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["dataframe"] = "dataframe"
    """By which others know a reference when they see one."""
    format: Literal["parquet", "table"] = "parquet"
    """How to read it."""
    location: str
    """The directory or URI of the Parquet files, or the table's name."""
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
        return spark.table(self.location) if self.format == "table" else spark.read.parquet(self.location)

    @classmethod
    def of_table(cls, spark: SparkSession, name: str) -> DataFrameRef:
        """A reference to a table that is there: to be returned by a task that has written it itself."""
        table = spark.table(name)
        return cls(format="table", location=name, columns=dict(table.dtypes), rows=table.count())


@dataclass(frozen=True, slots=True)
class ResultLocation:
    """Where to keep a job's DataFrame.

    Attributes:
        root: A directory, or a URI of any file system that Spark knows.
        queue: The job's queue.
        job: The job's id.
        may_commit: Asked before the files take the place of an earlier attempt's.
    """

    root: str
    queue: str
    job: str
    may_commit: Callable[[], bool] = lambda: True

    @property
    def location(self) -> str:
        """The same for each attempt, so that one overwrites the other."""
        return f"{self.root.rstrip('/')}/{segment(self.queue)}/{segment(self.job)}"


def dataframe_parameters(function: Callable[..., Any]) -> list[str]:
    """Parameters of a function ``f(spark, ...)`` that are annotated as DataFrames."""
    names = list(inspect.signature(function).parameters)[1:]
    return [name for name in names if _is_dataframe(function.__annotations__.get(name))]


def returns_dataframe(function: Callable[..., Any]) -> bool:
    """Whether a function is annotated to return one."""
    return _is_dataframe(function.__annotations__.get("return"))


def _is_dataframe(hint: object) -> bool:
    """By its name: where PySpark is imported for type checkers only, there is nothing else."""
    if isinstance(hint, str):
        return hint.strip("'\" ") in _NAMES
    return isinstance(hint, type) and hint.__name__ == "DataFrame" and hint.__module__.startswith("pyspark.sql")


def call_with_frames(
    function: Callable[..., Any], spark: SparkSession, arguments: Mapping[str, Any], results: ResultLocation | None
) -> Any:
    """Call a function with DataFrames in place of references, and return a reference in place of a DataFrame.

    Args:
        function: ``f(spark, **arguments)``.
        spark: The session.
        arguments: Its arguments.
        results: Where to keep what it returns.

    Raises:
        UnrecoverableError: It returned a DataFrame, and nothing says where to keep it.
    """
    from pyspark.sql import DataFrame

    given = {
        name: DataFrameRef.model_validate(arguments[name])
        for name in dataframe_parameters(function)
        if arguments.get(name) is not None
    }
    result = function(spark, **{**arguments, **{name: ref.load(spark) for name, ref in given.items()}})
    if not isinstance(result, DataFrame):
        return result
    if results is None:
        raise UnrecoverableError(
            f"{function.__qualname__} returned a DataFrame, and nothing says where to keep it; set "
            "SparkOptions(results=...) or OQ_SPARK_RESULTS to a directory or URI that every worker reaches."
        )
    return _save(spark, result, results, [ref.location for ref in given.values()])


def write_new(frame: DataFrame, location: str) -> DataFrameRef:
    """Write a DataFrame to a place where there is nothing yet.

    Args:
        frame: What to write.
        location: A directory, or a URI of any file system that Spark knows.

    Raises:
        UnrecoverableError: Spark wrote a directory that is not to be seen from here.
    """

    def write(counted: DataFrame) -> int:
        counted.write.parquet(location)
        return _held_by_uri(frame.sparkSession, location) if _IS_URI.match(location) else _held_by(Path(location))

    return _written(frame, location, [], write)


def _save(spark: SparkSession, frame: DataFrame, results: ResultLocation, given: list[str]) -> DataFrameRef:
    write = _write_uri if _IS_URI.match(results.root) else _write_directory
    return _written(frame, results.location, given, lambda counted: write(spark, counted, results))


def _written(frame: DataFrame, location: str, given: list[str], write: Callable[[DataFrame], int]) -> DataFrameRef:
    """What a DataFrame is, once ``write`` has written it and told its bytes."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812 (so does everybody)

    observed = Observation()
    counted = frame.observe(observed, F.count(F.lit(1)).alias("rows"))  # on the way: no second pass over the rows
    held = write(counted)
    inputs = dict.fromkeys([*given, *_directories(frame.inputFiles(), given)])
    return DataFrameRef(
        location=location,
        columns=dict(frame.dtypes),
        rows=observed.get["rows"],
        bytes=held,
        inputs=tuple(inputs)[:_MOST_INPUTS],
    )


def _write_directory(_spark: SparkSession, frame: DataFrame, results: ResultLocation) -> int:
    """Write beside the place, then move there: whoever looks finds all files, or those of an earlier attempt."""
    final = Path(results.location).absolute()
    drafts = Path(results.root).absolute() / _DRAFTS / segment(results.queue) / segment(results.job)
    draft = drafts / secrets.token_hex(4)
    frame.write.parquet(str(draft))
    held = _held_by(draft)
    if not results.may_commit():
        shutil.rmtree(draft, ignore_errors=True)
        raise SparkCancelledError(f"The job was told to stop before its result took its place at {final}.")
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        shutil.move(final, drafts / f"{draft.name}-old")
    draft.rename(final)
    shutil.rmtree(drafts, ignore_errors=True)  # and what attempts that were killed have left there
    return held


def _write_uri(spark: SparkSession, frame: DataFrame, results: ResultLocation) -> int:
    """Spark's own commit: the files appear when all are written, and then ``_SUCCESS`` beside them."""
    frame.write.mode("overwrite").parquet(results.location)
    return _held_by_uri(spark, results.location)


def _held_by(directory: Path) -> int:
    """The bytes of a directory that Spark has just written."""
    if not directory.is_dir():
        raise UnrecoverableError(
            f"Spark wrote {directory} on another machine, where this process cannot see it; name a directory that both "
            "share, or a URI such as s3a://bucket/results (for tasks by SparkOptions(results=...))."
        )
    return sum(file.stat().st_size for file in directory.glob("**/*.parquet"))


def _held_by_uri(spark: SparkSession, location: str) -> int:
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet").load(location)
    return int(files.selectExpr("coalesce(sum(length), 0) as held").collect()[0]["held"])


def _directories(files: list[str], given: list[str]) -> list[str]:
    """The directories of what Spark has read, without those that a reference has named."""
    found = dict.fromkeys(str(PurePosixPath(file.removeprefix("file://")).parent) for file in files)
    known = tuple(str(Path(location).absolute()) for location in given)
    return [directory for directory in found if not directory.startswith(known)]


def segment(name: str) -> str:
    """Any name as one step of a path."""
    return "%2E" * len(name) if set(name) == {"."} else quote(name, safe="")
