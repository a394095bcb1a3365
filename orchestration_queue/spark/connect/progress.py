"""PySpark's progress events as a job's progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

from orchestration_queue.spark.progress import ProgressReporter

__all__ = ["QueryProgress"]


class QueryProgress(ProgressHandler):
    """Told by PySpark about the query that runs.

    Args:
        tell: Receives a percentage of the query's tasks, and a text.
        every_s: Seconds between two times.
    """

    def __init__(self, tell: Callable[[int, str], None], every_s: float = 0.5) -> None:
        self._reporter = ProgressReporter(tell, every_s)
        self._numbers: dict[str, int] = {}

    def __call__(
        self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """As PySpark calls its handlers. That a query is done says nothing of the job: another may follow."""
        known = list(stages or ())
        if done or not known:
            return
        self._reporter.at(
            self._numbers.setdefault(operation_id or "", len(self._numbers) + 1),
            sum(stage.num_completed_tasks for stage in known),
            sum(stage.num_tasks for stage in known),
            inflight_tasks,
            sum(stage.num_bytes_read for stage in known),
        )
