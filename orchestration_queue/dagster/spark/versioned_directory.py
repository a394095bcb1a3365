"""Where the DataFrames of assets lie, and which of them is the one that counts.

::

    <root>/<asset>/<key>/<parts>[/partition=2013-07-01 | /color=red/date=2013-07-01]/
        @dataframe.json          the reference of what counts: replaced in one step
        @versions/<run>.<word>/  the files of one attempt, complete or not

Names from outside are quoted, so that none of them holds ``=`` or ``@``: no asset can lie where another's files are.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from pydantic import ValidationError
from upath import UPath

from orchestration_queue.errors import StateError
from orchestration_queue.spark.references import DataFrameRef, segment

__all__ = ["VersionedDirectory", "partition_words"]

_POINTER = "@dataframe.json"
_VERSIONS = "@versions"


def partition_words(key: str) -> list[str]:
    """A partition as steps of a path; each dimension is one, in the order of their names."""
    dimensions: Mapping[str, str] = (
        key.keys_by_dimension if isinstance(key, dg.MultiPartitionKey) else {"partition": key}
    )
    return [f"{segment(name)}={segment(dimensions[name])}" for name in sorted(dimensions)]


@dataclass(frozen=True, slots=True)
class VersionedDirectory:
    """The place of one DataFrame.

    Attributes:
        directory: Where its versions are, and the reference of the one that counts.
    """

    directory: Path | UPath

    @classmethod
    def of(cls, root: str, words: Sequence[str], partition: str | None) -> VersionedDirectory:
        """The place of an asset, or of one partition of it."""
        base: Path | UPath = UPath(root) if "://" in root else Path(root).absolute()
        return cls(
            base.joinpath(*(segment(word) for word in words), *(partition_words(partition) if partition else []))
        )

    def draft(self, run_id: str) -> str:
        """A new directory for the files of an attempt."""
        return str(self.directory / _VERSIONS / f"{segment(run_id)}.{secrets.token_hex(4)}")

    def read(self) -> DataFrameRef | None:
        """The reference of what counts; None while there is nothing.

        Raises:
            StateError: There is something else.
        """
        try:
            return DataFrameRef.model_validate_json((self.directory / _POINTER).read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise StateError(
                f"{self.directory / _POINTER} is no reference of a DataFrame; remove it, and materialize again."
            ) from None

    def point_to(self, reference: DataFrameRef, is_over: Callable[[str], bool]) -> None:
        """Make a version the current one, and remove those that no reader can need.

        What counted until now stays: there may be a reader. What an earlier run has left, goes with the next.

        Args:
            reference: The DataFrame.
            is_over: Whether a run has ended, by its id.
        """
        before = self.read()
        self.directory.mkdir(parents=True, exist_ok=True)
        pointer, text = self.directory / _POINTER, reference.model_dump_json(indent=1)
        if isinstance(pointer, Path):
            draft = pointer.with_name(f"{_POINTER}.{secrets.token_hex(4)}")
            draft.write_text(text, "utf-8")
            draft.replace(pointer)
        else:  # an object is there as a whole, or not at all
            pointer.write_text(text, "utf-8")
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
