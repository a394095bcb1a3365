"""Store the DataFrames of assets as files by asset and partition, complete or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import dagster as dg
from pydantic import Field, ValidationError, field_validator
from upath import UPath

from orchestration_queue.dagster.spark.session import SparkSessionResource
from orchestration_queue.errors import StateError, UsageError
from orchestration_queue.spark.dataframes import DataFrameRef, segment
from orchestration_queue.spark.options import FileFormat
from orchestration_queue.spark.result_files import write_new

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ParquetIOManager", "VersionedDirectory", "partition_words"]

_POINTER = "@dataframe.json"
_VERSIONS = "@versions"


def partition_words(key: str) -> list[str]:
    """Return a partition as parts of a path; each dimension is one, in the order of their names."""
    dimensions: Mapping[str, str] = (
        key.keys_by_dimension if isinstance(key, dg.MultiPartitionKey) else {"partition": key}
    )
    return [f"{segment(name)}={segment(dimensions[name])}" for name in sorted(dimensions)]


@dataclass(frozen=True, slots=True)
class VersionedDirectory:
    """The directory of one DataFrame.

    Attributes:
        directory: The directory of its versions, and of the reference to the current one.
    """

    directory: Path | UPath

    @classmethod
    def of(cls, root: str, words: Sequence[str], partition: str | None) -> VersionedDirectory:
        """Return the directory of an asset, or of one of its partitions."""
        base: Path | UPath = UPath(root) if "://" in root else Path(root).absolute()
        return cls(
            base.joinpath(*(segment(word) for word in words), *(partition_words(partition) if partition else []))
        )

    def draft(self, run_id: str) -> str:
        """Return a new directory for the files of an attempt."""
        return str(self.directory / _VERSIONS / f"{segment(run_id)}.{secrets.token_hex(4)}")

    def read(self) -> DataFrameRef | None:
        """Read the reference to the current version; None without one.

        Raises:
            StateError: The file is not a reference.
        """
        try:
            return DataFrameRef.model_validate_json((self.directory / _POINTER).read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise StateError(
                f"{self.directory / _POINTER} is not a reference to a DataFrame; remove it, and materialize again."
            ) from None

    def point_to(self, reference: DataFrameRef, is_over: Callable[[str], bool]) -> None:
        """Make a version the current one, and remove versions that no reader can need.

        The previous version is kept for its readers. Versions of earlier runs that have ended are removed.

        Args:
            reference: The new version.
            is_over: Returns whether a run has ended, by its id.
        """
        before = self.read()
        self.directory.mkdir(parents=True, exist_ok=True)
        pointer, text = self.directory / _POINTER, reference.model_dump_json(indent=1)
        if isinstance(pointer, Path):
            draft = pointer.with_name(f"{_POINTER}.{secrets.token_hex(4)}")
            draft.write_text(text, "utf-8")
            # Atomic: a reader finds the old reference or the new one (decision 0013).
            draft.replace(pointer)
        else:  # object stores write atomically
            pointer.write_text(text, "utf-8")
        # The previous version too: a reader may have read its reference just now.
        kept = {ref.location.rstrip("/").rpartition("/")[2] for ref in (before, reference) if ref is not None}
        self._sweep(kept, is_over)

    def _sweep(self, kept: set[str], is_over: Callable[[str], bool]) -> None:
        versions: Path | UPath = self.directory / _VERSIONS
        if not versions.is_dir():
            return
        found: list[Path | UPath] = [*versions.iterdir()]
        for version in found:
            if version.name not in kept and is_over(version.name.rpartition(".")[0]):
                _remove(version)


def _remove(directory: Path | UPath) -> None:
    if isinstance(directory, Path):
        shutil.rmtree(directory, ignore_errors=True)
    else:
        directory.fs.rm(directory.path, recursive=True)


_MAY_LACK = "allow_missing_partitions"


class ParquetIOManager(dg.ConfigurableIOManager):
    """Stores the DataFrames that assets return as files, Parquet by default, and loads them for downstream assets.

    Each attempt writes to a new directory. After all files are written, it replaces a small file that names the current
    directory. So a reader finds either all old files or all new ones, and never those of an attempt that was killed.
    The previous version remains for readers that still use it.

    An asset can also return a :class:`~orchestration_queue.spark.DataFrameRef`, such as the result of a Spark task;
    nothing is copied then. An input annotated as ``DataFrameRef`` gets the reference and needs no Spark. For several
    partitions in one run, an asset returns a dict of DataFrames by partition. An input gets the DataFrames of all its
    partitions as one, or, if annotated as ``dict``, by partition. With the metadata ``allow_missing_partitions``,
    missing ones are skipped.

    Examples:
        >>> import dagster as dg
        >>> spark = SparkSessionResource()
        >>> defs = dg.Definitions(
        ...     resources={"spark": spark, "io_manager": ParquetIOManager(root="/data/lake", spark=spark)}
        ... )
    """

    root: str = Field(description="The directory, or a URI of a file system that both Spark and fsspec support.")
    spark: SparkSessionResource | None = Field(
        default=None,
        description="The resource whose session loads; default the active session of the process, or a new one.",
    )
    format: str = Field(
        default="parquet",
        description="The format of new files: parquet, orc, or delta if Spark has Delta Lake's jars.",
    )

    @field_validator("format")
    @classmethod
    def _check_format(cls, value: str) -> str:
        if value not in get_args(FileFormat):
            raise ValueError(f"`format` must be one of {', '.join(get_args(FileFormat))}, got {value!r}")
        return value

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Write the DataFrames of an asset, and describe them.

        Raises:
            UsageError: The value is not a DataFrame, or not one for each partition.
        """
        keys = _partitions(context)
        frames = _by_partition(obj, keys, _name(context))
        written = [self._write(context, key, frame) for key, frame in frames.items()]
        context.add_output_metadata(_describe(written, is_partition=keys != [None]))

    def load_input(self, context: dg.InputContext) -> Any:
        """Load an asset's DataFrames in the form of the parameter's annotation.

        Raises:
            StateError: The data do not exist, or not for all partitions.
            UsageError: A reference is requested, but there are several partitions.
        """
        found = self._references(context)
        kind = context.dagster_type.typing_type
        if kind is DataFrameRef:
            if len(found) > 1:
                raise UsageError(
                    f"The input {context.name!r} is a DataFrameRef, but {_name(context)} has {len(found)} partitions "
                    "here; annotate it as dict[str, DataFrameRef], or as DataFrame."
                )
            return next(iter(found.values()))
        if _is_dict(kind):
            if DataFrameRef in getattr(kind, "__args__", ()):
                return found
            return {key: ref.load(self._session(context)) for key, ref in found.items()}
        return _union(self._session(context), list(found.values()))

    def _write(self, context: dg.OutputContext, partition: str | None, frame: Any) -> DataFrameRef:
        place = VersionedDirectory.of(self.root, _words(context), partition)
        if isinstance(frame, DataFrameRef):
            reference = frame
        else:
            reference = write_new(frame, place.draft(context.run_id), cast("FileFormat", self.format))
        place.point_to(reference, lambda run: run == context.run_id or _is_over(context, run))
        return reference

    def _references(self, context: dg.InputContext) -> dict[str | None, DataFrameRef]:
        found: dict[str | None, DataFrameRef] = {}
        missing = []
        for key in _partitions(context):
            reference = VersionedDirectory.of(self.root, _words(context), key).read()
            if reference is None:
                missing.append(key)
            else:
                found[key] = reference
        may_lack = context.definition_metadata.get(_MAY_LACK, False)
        if not found or (missing and not may_lack):
            which = f" for partition {missing[0]!r}" if missing and missing[0] is not None else ""
            more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
            raise StateError(
                f"Data of {_name(context)}{which}{more} do not exist below {self.root}; materialize it first"
                f"{f', or add the metadata {_MAY_LACK} to the input' if found else ''}."
            )
        return found

    def _session(self, context: dg.InputContext) -> SparkSession:
        if self.spark is not None:
            return self.spark.session_of(context.step_context)
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _words(context: dg.InputContext | dg.OutputContext) -> Sequence[str]:
    """Return the parts of a path for an asset, or for an output of an op in a run."""
    return context.asset_key.path if context.has_asset_key else ["runs", *context.get_identifier()]


def _name(context: dg.InputContext | dg.OutputContext) -> str:
    return f"asset {context.asset_key.to_user_string()}" if context.has_asset_key else f"output {context.name!r}"


def _partitions(context: dg.InputContext | dg.OutputContext) -> list[str | None]:
    return [*context.asset_partition_keys] if context.has_asset_partitions else [None]


def _by_partition(obj: object, keys: Sequence[str | None], what: str) -> dict[str | None, Any]:
    """Return the DataFrame or reference of each partition."""
    if len(keys) == 1 and not isinstance(obj, Mapping):
        frames: Mapping[Any, Any] = {keys[0]: obj}
    elif isinstance(obj, Mapping) and set(obj) == set(keys):
        frames = {key: obj[key] for key in keys}  # with these keys, because a MultiPartitionKey is more than a string
    else:
        raise UsageError(
            f"This step makes {len(keys)} partitions of {what}, but returned a {type(obj).__name__} without their "
            "keys; return a dict of DataFrames by partition key, or use BackfillPolicy.multi_run(1)."
        )
    for frame in frames.values():
        if not isinstance(frame, DataFrameRef) and not _is_dataframe(frame):
            raise UsageError(
                f"{what[0].upper()}{what[1:]} returned a {type(frame).__name__}, which ParquetIOManager can't store; "
                "return a Spark DataFrame or a DataFrameRef, or set another io_manager_key."
            )
    return dict(frames)


def _is_dataframe(value: object) -> bool:
    """Return whether a value is a DataFrame, without importing Spark."""
    return any(
        base.__module__.startswith("pyspark.sql") and base.__name__ == "DataFrame" for base in type(value).__mro__
    )


def _is_dict(kind: Any) -> bool:
    return kind is dict or getattr(kind, "__origin__", None) in (dict, Mapping)


def _union(spark: SparkSession, references: Sequence[DataFrameRef]) -> DataFrame:
    """Load several DataFrames as one. If all have the same columns, Spark reads their files as one table."""
    first = references[0]
    if all(ref.format == "parquet" and ref.columns == first.columns for ref in references):
        return spark.read.parquet(*(ref.location for ref in references))
    frames = [reference.load(spark) for reference in references]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _is_over(context: dg.OutputContext, run_id: str) -> bool:
    """Return whether a run has ended, so that none of its steps can write."""
    run = context.step_context.instance.get_run_by_id(run_id)
    return run is None or run.is_finished


def _describe(written: Sequence[DataFrameRef], *, is_partition: bool) -> dict[str, Any]:
    rows = sum(reference.rows for reference in written)
    columns = [dg.TableColumn(name, kind) for name, kind in written[0].columns.items()]
    known: dict[str, Any] = {"orchestration_queue/bytes": sum(reference.bytes or 0 for reference in written)}
    if len(written) == 1:
        known |= {"dagster/uri": _uri(written[0]), "orchestration_queue/inputs": list(written[0].inputs)}
    return known | {
        "dagster/row_count": rows,
        **({"dagster/partition_row_count": rows} if is_partition else {}),
        "dagster/column_schema": dg.TableSchema(columns),
    }


def _uri(reference: DataFrameRef) -> str:
    if reference.format == "table" or "://" in reference.location:
        return reference.location
    return f"file://{Path(reference.location).absolute()}"  # not quoted: neither Spark nor fsspec would unquote it
