"""How far Spark is, in the words of a job's progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

__all__ = ["QueryProgress"]


class QueryProgress(ProgressHandler):
    """Told by PySpark about the query that runs; tells now and then, and only what is new.

    Args:
        tell: Receives a percentage of the query's tasks, and a text.
        every_s: Seconds between two times.
    """

    def __init__(self, tell: Callable[[int, str], None], every_s: float = 0.5) -> None:
        self._tell = tell
        self._every_s = every_s
        self._queries: dict[str, tuple[int, int]] = {}
        self._told: tuple[int, str] | None = None
        self._next = 0.0

    def __call__(
        self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """As PySpark calls its handlers. That a query is done says nothing of the job: another may follow."""
        known = list(stages or ())
        total = sum(stage.num_tasks for stage in known)
        if done or not total:
            return
        number, most = self._queries.get(operation_id or "", (len(self._queries) + 1, 0))
        completed = sum(stage.num_completed_tasks for stage in known)
        read = sum(stage.num_bytes_read for stage in known)
        text = f"query {number}: {completed} of {total} tasks, {inflight_tasks} running, {_size(read)} read"
        # Spark plans some stages late, and then there is more to do; what was told is not taken back.
        most = max(most, 100 * completed // total)
        self._queries[operation_id or ""] = (number, most)
        told = (most, text)
        if told != self._told and time.monotonic() >= self._next:
            self._told, self._next = told, time.monotonic() + self._every_s
            self._tell(*told)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
