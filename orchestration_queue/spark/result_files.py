"""Writing the DataFrames that jobs return: beside their place first, then into it in one step."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from orchestration_queue.errors import SparkCancelledError, UnrecoverableError
from orchestration_queue.spark.references import DataFrameRef, ResultLocation, segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

__all__ = ["write_new", "write_results"]

_MOST_INPUTS = 100
_IS_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DRAFTS = ".drafts"
_DATA_FILES = "[!._]*"
"""What Spark's files are called; its marks and checksums begin with a dot or an underscore."""


def write_new(frame: DataFrame, location: str) -> DataFrameRef:
    """Write a DataFrame as Parquet to a place where there is nothing yet.

    Args:
        frame: What to write.
        location: A directory, or a URI of any file system that Spark knows.

    Raises:
        UnrecoverableError: Spark wrote a directory that cannot be seen from here.
    """

    def write(counted: DataFrame) -> int:
        counted.write.parquet(location)
        return _count_uri_bytes(frame.sparkSession, location) if _IS_URI.match(location) else _count_bytes(location)

    return _write(frame, DataFrameRef(location=location, columns={}, rows=0), [], write)


def write_results(
    spark: SparkSession, frames: Mapping[str, DataFrame], results: ResultLocation, inputs: Sequence[str]
) -> dict[str, DataFrameRef]:
    """Write the DataFrames of one result.

    Args:
        spark: The session.
        frames: By their paths below the location; an empty path is the location itself.
        results: Where and how.
        inputs: Locations of the references that they were made from.

    Raises:
        SparkCancelledError: The job has to stop, and an earlier attempt's files stay.
        UnrecoverableError: Spark wrote a directory that cannot be seen from here.
    """
    write = _write_to_uri if _IS_URI.match(results.root) else _write_to_directory
    return write(spark, frames, results, inputs)


def _write_to_directory(
    _spark: SparkSession, frames: Mapping[str, DataFrame], results: ResultLocation, inputs: Sequence[str]
) -> dict[str, DataFrameRef]:
    """Write to a draft, then move that: a reader finds all files, or those of an earlier attempt."""
    final = Path(results.location).absolute()
    drafts = Path(results.root).absolute() / _DRAFTS / segment(results.queue) / segment(results.job)
    draft = drafts / secrets.token_hex(4)
    refs = {}
    for path, frame in frames.items():

        def write(counted: DataFrame, target: str = str(draft / path)) -> int:
            _writer(counted, results).save(target)
            return _count_bytes(target)

        refs[path] = _write(frame, _target(results, path), inputs, write)
    if not results.may_commit():
        shutil.rmtree(draft, ignore_errors=True)
        raise SparkCancelledError(f"The job was told to stop before its result took its place at {final}.")
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        shutil.move(final, drafts / f"{draft.name}-old")
    draft.rename(final)
    shutil.rmtree(drafts, ignore_errors=True)  # with what killed attempts left there
    return refs


def _write_to_uri(
    spark: SparkSession, frames: Mapping[str, DataFrame], results: ResultLocation, inputs: Sequence[str]
) -> dict[str, DataFrameRef]:
    """Use Spark's own commit: the files appear when all are written, and then ``_SUCCESS`` beside them."""
    refs = {}
    for path, frame in frames.items():
        target = _target(results, path)

        def write(counted: DataFrame, location: str = target.location) -> int:
            _writer(counted, results).mode("overwrite").save(location)
            return _count_uri_bytes(spark, location)

        refs[path] = _write(frame, target, inputs, write)
    return refs


def _target(results: ResultLocation, path: str) -> DataFrameRef:
    location = f"{results.location}/{path}" if path else results.location
    return DataFrameRef(format=results.format, location=location, columns={}, rows=0)


def _writer(frame: DataFrame, results: ResultLocation) -> DataFrameWriter:
    if results.files is not None:
        # By the columns first: else each of the files of every partition would hold a piece of each directory.
        by = results.partition_by
        frame = frame.repartition(results.files, *by) if by else frame.coalesce(results.files)
    return frame.write.format(results.format).partitionBy(*results.partition_by)


def _write(
    frame: DataFrame, target: DataFrameRef, inputs: Sequence[str], write: Callable[[DataFrame], int]
) -> DataFrameRef:
    """Complete a reference to a DataFrame that ``write`` writes, returning its bytes."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812 (so does everybody)

    observed = Observation()
    counted = frame.observe(observed, F.count(F.lit(1)).alias("rows"))  # on the way: no second pass over the rows
    held = write(counted)
    origins = dict.fromkeys([*inputs, *_directories(frame.inputFiles(), inputs)])
    facts = {
        "columns": dict(frame.dtypes),
        "rows": observed.get["rows"],
        "bytes": held,
        "inputs": tuple(origins)[:_MOST_INPUTS],
    }
    return target.model_copy(update=facts)


def _count_bytes(location: str) -> int:
    directory = Path(location)
    if not directory.is_dir():
        raise UnrecoverableError(
            f"Spark wrote {directory} on another machine, where this process cannot see it; name a directory that both "
            "share, or a URI such as s3a://bucket/results (for tasks by SparkOptions(results=...))."
        )
    return sum(file.stat().st_size for file in directory.rglob(_DATA_FILES) if file.is_file())


def _count_uri_bytes(spark: SparkSession, location: str) -> int:
    found = spark.read.format("binaryFile").option("pathGlobFilter", "[^._]*").option("recursiveFileLookup", "true")
    return int(found.load(location).selectExpr("coalesce(sum(length), 0) as held").collect()[0]["held"])


def _directories(files: list[str], known: Sequence[str]) -> list[str]:
    """Return the directories of files that Spark has read, without those that a reference has named."""
    found = dict.fromkeys(str(PurePosixPath(file.removeprefix("file://")).parent) for file in files)
    named = tuple(str(Path(location).absolute()) for location in known)
    return [directory for directory in found if not directory.startswith(named)]
