"""Call functions with DataFrames in place of references, and write the DataFrames that they return.

Files are written to a draft directory, then moved into place in one step. Nothing here imports PySpark before there is
a session.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from orchestration_queue.errors import SparkCancelledError, UnrecoverableError
from orchestration_queue.spark.dataframes import (
    DataFrameRef,
    dataframe_parameters,
    references_in,
    replace_each,
    segment,
)
from orchestration_queue.spark.options import FileFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

__all__ = ["DRAFTS", "ResultLocation", "call_with_frames", "store_frames", "write_new", "write_results"]

_MOST_INPUTS = 100
_IS_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_LACKS_DELTA = re.compile(r"\[DATA_SOURCE_NOT_FOUND\].*\bdelta\b", re.IGNORECASE)
DRAFTS = ".drafts"
"""The directory, below that of results, in which files are until all are written."""
_DATA_FILES = "[!._]*"
"""Matches Spark's data files; its markers and checksums begin with a dot or an underscore."""


@dataclass(frozen=True, slots=True)
class ResultLocation:
    """Where and in which format a job's DataFrames are written.

    Attributes:
        root: A directory, or a URI of any file system that Spark supports.
        queue: The job's queue.
        job: The job's id.
        format: Format of the files.
        partition_by: Columns whose values become directories.
        files: Write at most this many files, or this many per partition directory; None leaves it to Spark.
        may_commit: Called before the files replace those of an earlier attempt; false keeps the earlier ones.
    """

    root: str
    queue: str
    job: str
    format: FileFormat = "parquet"
    partition_by: tuple[str, ...] = ()
    files: int | None = None
    may_commit: Callable[[], bool] = lambda: True

    @property
    def location(self) -> str:
        """The directory. Every attempt has the same, and replaces the files of an earlier one."""
        return f"{self.root.rstrip('/')}/{segment(self.queue)}/{segment(self.job)}"

    def to_json(self) -> dict[str, Any]:
        """Return it for another process, which cannot call ``may_commit``."""
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
        UnrecoverableError: It returned a DataFrame, and no location for results is set.
    """
    given = {
        name: TypeAdapter(shape.annotate(DataFrameRef)).validate_python(arguments[name])
        for name, shape in dataframe_parameters(function).items()
        if arguments.get(name) is not None
    }
    loaded = {name: replace_each(value, DataFrameRef, lambda _, ref: ref.load(spark)) for name, value in given.items()}
    with explain_missing_format():
        returned = function(spark, **{**arguments, **loaded})
    inputs = [ref.location for value in given.values() for ref in references_in(value)]
    return store_frames(spark, returned, results, function.__qualname__, inputs)


def store_frames(
    spark: SparkSession, returned: Any, results: ResultLocation | None, what: str, inputs: Sequence[str] = ()
) -> Any:
    """Write the DataFrames in a value, and return it with references in their places.

    Args:
        spark: The session.
        returned: The value.
        results: Where they are written.
        what: What returned it, in an error.
        inputs: Locations of the references that they were made from.

    Raises:
        UnrecoverableError: There are DataFrames, and no location for results is set.
    """
    result = replace_each(returned, _row_type(), lambda _, row: row.asDict(recursive=True))
    frames = _collect_frames(result)
    if not frames:
        return result
    if results is None:
        raise UnrecoverableError(
            f"{what} returned a DataFrame, but no location for results is set; set "
            "SparkOptions(results=...) or OQ_SPARK_RESULTS to a directory or URI that every worker can access."
        )
    with explain_missing_format():
        written = write_results(spark, frames, results, inputs)
    return replace_each(result, _frame_type(), lambda path, _: written[path])


@contextmanager
def explain_missing_format() -> Iterator[None]:
    """Replace Spark's general message about an unknown format by one that says how to add Delta Lake."""
    try:
        yield
    except Exception as error:
        if not _LACKS_DELTA.search(str(error)):
            raise
        raise UnrecoverableError(
            "The format 'delta' needs Delta Lake, which Spark does not have; add its jars to the server, as in "
            "ConnectServer(SparkOptions(conf={'spark.jars.packages': 'io.delta:delta-spark_2.13:VERSION', "
            "'spark.sql.extensions': 'io.delta.sql.DeltaSparkSessionExtension', 'spark.sql.catalog.spark_catalog': "
            "'org.apache.spark.sql.delta.catalog.DeltaCatalog'})), or use 'parquet'."
        ) from None


def _collect_frames(result: object) -> dict[str, DataFrame]:
    found: dict[str, DataFrame] = {}
    replace_each(result, _frame_type(), found.__setitem__)
    return found


def _frame_type() -> Any:
    from pyspark.sql import DataFrame

    return DataFrame


def _row_type() -> Any:
    from pyspark.sql import Row

    return Row


def write_new(frame: DataFrame, location: str, format: FileFormat = "parquet") -> DataFrameRef:  # noqa: A002
    """Write a DataFrame to a location that does not exist yet.

    Args:
        frame: The DataFrame.
        location: A directory, or a URI of any file system that Spark supports.
        format: The format of the files.

    Raises:
        UnrecoverableError: This process cannot see the directory that Spark wrote, or Spark lacks the format.
    """

    def write() -> tuple[int, int]:
        if _IS_URI.match(location):
            rows = _count_while_saving(frame, lambda counted: counted.write.format(format).save(location))
            return rows, _count_uri_bytes(frame.sparkSession, location)
        return _write_files(frame, lambda each: each.write.format(format).save(location), location, format)

    with explain_missing_format():
        return _describe(frame, DataFrameRef(format=format, location=location, columns={}, rows=0), [], write)


def write_results(
    spark: SparkSession, frames: Mapping[str, DataFrame], results: ResultLocation, inputs: Sequence[str]
) -> dict[str, DataFrameRef]:
    """Write the DataFrames of one result.

    Args:
        spark: The session.
        frames: The DataFrames by their paths below the location; an empty path is the location itself.
        results: Where and how to write them.
        inputs: Locations of the references that they were made from.

    Raises:
        SparkCancelledError: The job must stop; the files of an earlier attempt are kept.
        UnrecoverableError: This process cannot see the directory that Spark wrote.
    """
    write = _write_to_uri if _IS_URI.match(results.root) else _write_to_directory
    return write(spark, frames, results, inputs)


def _write_to_directory(
    _spark: SparkSession, frames: Mapping[str, DataFrame], results: ResultLocation, inputs: Sequence[str]
) -> dict[str, DataFrameRef]:
    """Write to a draft directory, then move it: readers see all files, or those of an earlier attempt."""
    final = Path(results.location).absolute()
    drafts = Path(results.root).absolute() / DRAFTS / segment(results.queue) / segment(results.job)
    draft = drafts / secrets.token_hex(4)
    refs = {}
    for path, frame in frames.items():

        def write(frame: DataFrame = frame, target: str = str(draft / path)) -> tuple[int, int]:
            return _write_files(frame, lambda each: _writer(each, results).save(target), target, results.format)

        refs[path] = _describe(frame, _target(results, path), inputs, write)
    if not results.may_commit():
        shutil.rmtree(draft, ignore_errors=True)
        raise SparkCancelledError(f"The job was asked to stop before its result was moved to {final}.")
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        # rename() does not replace a directory that has files.
        shutil.move(final, drafts / f"{draft.name}-old")
    draft.rename(final)
    shutil.rmtree(drafts, ignore_errors=True)  # including the drafts of killed attempts
    return refs


def _write_to_uri(
    spark: SparkSession, frames: Mapping[str, DataFrame], results: ResultLocation, inputs: Sequence[str]
) -> dict[str, DataFrameRef]:
    """Use Spark's own commit: the files appear once all are written, followed by ``_SUCCESS``."""
    refs = {}
    for path, frame in frames.items():
        target = _target(results, path)

        def write(frame: DataFrame = frame, location: str = target.location) -> tuple[int, int]:
            rows = _count_while_saving(frame, lambda each: _writer(each, results).mode("overwrite").save(location))
            return rows, _count_uri_bytes(spark, location)

        refs[path] = _describe(frame, target, inputs, write)
    return refs


def _target(results: ResultLocation, path: str) -> DataFrameRef:
    location = f"{results.location}/{path}" if path else results.location
    return DataFrameRef(format=results.format, location=location, columns={}, rows=0)


def _writer(frame: DataFrame, results: ResultLocation) -> DataFrameWriter:
    if results.files is not None:
        # By the columns first, or else every task would write a file to every directory.
        by = results.partition_by
        frame = frame.repartition(results.files, *by) if by else frame.coalesce(results.files)
    return frame.write.format(results.format).partitionBy(*results.partition_by)


def _describe(
    frame: DataFrame, target: DataFrameRef, inputs: Sequence[str], write: Callable[[], tuple[int, int]]
) -> DataFrameRef:
    """Write a DataFrame by ``write``, which returns rows and bytes, and complete the reference to it."""
    columns = dict(frame.dtypes)  # first: a Connect server keeps the analyzed plan for what follows
    rows, held = write()
    origins = dict.fromkeys([*inputs, *_directories(frame.inputFiles(), inputs)])
    facts = {"columns": columns, "rows": rows, "bytes": held, "inputs": tuple(origins)[:_MOST_INPUTS]}
    return target.model_copy(update=facts)


def _write_files(
    frame: DataFrame, save: Callable[[DataFrame], None], directory: str, file_format: str
) -> tuple[int, int]:
    """Write files that this process can see, and return their rows and bytes."""
    if file_format == "parquet" and find_spec("pyarrow"):
        save(frame)
        return _count_footers(directory), _count_bytes(directory)
    return _count_while_saving(frame, save), _count_bytes(directory)


def _count_footers(directory: str) -> int:
    """Return the number of rows from the footers of Parquet files, so that Spark need not count them."""
    from pyarrow.parquet import read_metadata

    return sum(read_metadata(file).num_rows for file in Path(directory).rglob("*.parquet"))


def _count_while_saving(frame: DataFrame, save: Callable[[DataFrame], None]) -> int:
    """Save a DataFrame and count its rows in the same pass."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812 (so does everybody)

    observed = Observation()
    save(frame.observe(observed, F.count(F.lit(1)).alias("rows")))
    return int(observed.get["rows"])


def _count_bytes(location: str) -> int:
    directory = Path(location)
    if not directory.is_dir():
        raise UnrecoverableError(
            f"Spark wrote {directory} on another machine, where this process cannot see it; use a directory that both "
            "share, or a URI such as s3a://bucket/results (for tasks, set SparkOptions(results=...))."
        )
    return sum(file.stat().st_size for file in directory.rglob(_DATA_FILES) if file.is_file())


def _count_uri_bytes(spark: SparkSession, location: str) -> int:
    found = spark.read.format("binaryFile").option("pathGlobFilter", "[^._]*").option("recursiveFileLookup", "true")
    return int(found.load(location).selectExpr("coalesce(sum(length), 0) as held").collect()[0]["held"])


def _directories(files: list[str], known: Sequence[str]) -> list[str]:
    """Return the directories of files that Spark read, except the locations of references."""
    found = dict.fromkeys(str(PurePosixPath(file.removeprefix("file://")).parent) for file in files)
    named = tuple(str(Path(location).absolute()) for location in known)
    return [directory for directory in found if not directory.startswith(named)]
