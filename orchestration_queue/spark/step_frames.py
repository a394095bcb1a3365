"""Durable steps of Spark tasks, whose DataFrames are stored as files."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from orchestration_queue.errors import InvalidOptionError, UnrecoverableError
from orchestration_queue.options import StepOptions
from orchestration_queue.spark.dataframes import DataFrameRef, segment
from orchestration_queue.spark.result_files import DRAFTS, ResultLocation, store_frames
from orchestration_queue.worker import ActiveJob
from orchestration_queue.worker.steps import decorate_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkJob"]

_STEPS, _SWEPT = ".steps", ".swept"
_KEPT_S = timedelta(days=7).total_seconds()
"""How long files outlive their job's record: a job that was moved to another queue has none here."""
_SWEEP_EVERY_S = timedelta(hours=1).total_seconds()
_NAME_LENGTH = 20
"""So that a step's directory has at most 255 bytes, whatever its alphabet."""


class SparkJob(ActiveJob):
    """The running job of a Spark task: its steps may return DataFrames.

    Each run of a step writes to a directory of its own, so the stored reference leads to the files of the run that
    counts, whatever other attempts write.

    Args:
        job: The job.
        spark: The task's session.
        results: Where its DataFrames are written; None if that is not set.
    """

    def __init__(self, job: ActiveJob, spark: SparkSession, results: ResultLocation | None) -> None:
        super().__init__(job._job, job._loop)
        self._spark = spark
        self._results = results

    def step(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        /,
        *args: Any,
        options: StepOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once per job, as :meth:`ActiveJob.step` does; DataFrames that it returns are stored as files.

        Every attempt, the first one, too, gets DataFrames that read these files.

        Raises:
            UnrecoverableError: The files of a stored DataFrame are gone, or no location for results is set.
        """
        if function is None:
            return decorate_step(self.step, name, args, options, kwargs)

        def run() -> Any:
            location = self._step_location(name)
            stored = store_frames(self._spark, function(*args, **kwargs), location, f"Step {name!r}")
            if location is not None:
                with suppress(OSError):  # another worker sweeps, too
                    self._sweep(Path(location.root))
            return stored

        return self._load(name, super().step(name, run, options=options))

    def discard(self) -> None:
        """Use no further attempts of this job if this one fails."""
        self._job.discard()

    def _step_location(self, name: str) -> ResultLocation | None:
        if self._results is None:
            return None
        # Queues of this name on other servers may write here, too, and remove only their own files.
        root = f"{self._results.root.rstrip('/')}/{_STEPS}/{segment(self.queue)}/{self._origin}"
        return replace(self._results, root=root, queue=self.id, job=f"{name[:_NAME_LENGTH]}-{secrets.token_hex(4)}")

    @cached_property
    def _origin(self) -> str:
        return segment(self._await(self._job._read_origin()))

    def _load(self, name: str, value: Any) -> Any:
        """Return a stored result with DataFrames in place of references."""
        if isinstance(value, list):
            return [self._load(name, item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.get("kind") == "dataframe":
            with suppress(InvalidOptionError):  # a result of another kind that has this field
                return self._load_frame(name, DataFrameRef.model_validate(value))
        return {key: self._load(name, item) for key, item in value.items()}

    def _load_frame(self, name: str, ref: DataFrameRef) -> DataFrame:
        from pyspark.errors import AnalysisException

        frame = ref.load(self._spark)
        try:
            # A Connect session finds the files when it needs their columns.
            _ = frame.schema
        except AnalysisException as error:
            if error.getCondition() not in _GONE:
                raise
            raise UnrecoverableError(
                f"Step {name!r} of job {self.id!r} stored a DataFrame at {ref.location}, which is gone; run the step "
                f"again with `oq job retry {self.queue} {self.id} --from-step {name!r}`."
            ) from None
        return frame

    def _sweep(self, root: Path) -> None:
        """Remove the files of jobs without a record, at most once an hour over all workers. Only for directories."""
        marker, now = root / _SWEPT, time.time()
        if not root.is_dir() or (marker.exists() and now - marker.stat().st_mtime < _SWEEP_EVERY_S):
            return
        marker.touch()
        # A worker that was killed while it wrote has left a draft.
        places = [place for place in (root, root / DRAFTS) if place.is_dir()]
        directories = [entry for place in places for entry in place.iterdir() if entry.name not in (DRAFTS, _SWEPT)]
        old: dict[str, list[Path]] = {}
        for entry in directories:
            if now - entry.stat().st_mtime > _KEPT_S:
                old.setdefault(unquote(entry.name), []).append(entry)
        for job_id in self._await(self._job._find_gone(list(old))):
            for entry in old[job_id]:
                shutil.rmtree(entry, ignore_errors=True)


_GONE = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
