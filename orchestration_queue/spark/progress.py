"""Report the progress of Spark as a job's progress, from a listener inside an application's driver.

The listener (its source is in java/) needs no change to the application and no network: it writes to a file of the run,
or to the driver's log where the two sides share no file.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestration_queue.errors import TransportError

__all__ = ["LISTENER_JAR", "LOG_MARK", "ListenerFollower", "ListenerReport", "ProgressReporter", "with_listener"]

LISTENER_JAR = Path(__file__).with_name("listener.jar")
LOG_MARK = "orchestration_queue.progress "
"""Prefix of its lines in a driver's log."""

_CLASS = "orchestrationqueue.ProgressListener"
_TARGET = "spark.orchestration_queue.progress"


class ListenerReport(BaseModel):
    """A report of the listener on an application."""

    model_config = ConfigDict(frozen=True)

    application: str
    """The application's id."""
    query: int
    """The number of its newest query; each action runs one."""
    total: int
    completed: int
    running: int
    """Tasks of that query."""
    read: int
    """Bytes that the query read."""
    input_rows: int
    input_bytes: int
    output_rows: int
    output_bytes: int
    """Totals of external input and output over all tasks that succeeded."""

    @property
    def totals(self) -> dict[str, int]:
        """Rows and bytes, as in a job's result."""
        return self.model_dump(include={"input_rows", "input_bytes", "output_rows", "output_bytes"})


def with_listener(properties: Mapping[str, str], target: str, jar: str = str(LISTENER_JAR)) -> dict[str, str]:
    """Return Spark's properties with the listener added to the user's jars and listeners.

    Args:
        properties: The properties.
        target: The file that the listener writes, or ``stderr``.
        jar: Where the driver finds the listener.
    """
    # Not through Spark's own class path, with which an archive of classes would no longer match.
    ours = {"spark.jars": jar, "spark.extraListeners": _CLASS}
    lists = {name: ",".join(filter(None, (properties.get(name), value))) for name, value in ours.items()}
    return {**properties, **lists, _TARGET: target}


class ListenerFollower:
    """Reports what the listener writes as a job's progress.

    Args:
        progress: Called with ``percent``, ``text``, and facts about the application under ``spark``.
        file: The file that the listener writes; None if its lines arrive by :meth:`feed`.
        about: Facts about the application that are known before its first report.
        ui: The URL of its page, with ``{application}`` in place of its id.

    Attributes:
        last: The newest report; None before the first.
    """

    def __init__(
        self,
        progress: Callable[[dict[str, Any]], None],
        file: Path | None = None,
        about: Mapping[str, Any] | None = None,
        ui: str | None = None,
    ) -> None:
        self.last: ListenerReport | None = None
        self._ui = ui
        self._progress, self._about = progress, dict(about or {})
        self._file, self._seen = file, ""
        self._reporter = ProgressReporter(self.report)

    def poll(self) -> None:
        """Read the file, if it has changed."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if self._file and (line := self._file.read_text("utf-8")) != self._seen:
                self._seen = line
                self.feed(line)

    def poll_and_ask(self, should_stop: Callable[[], bool]) -> bool:
        """Read the file and return the answer of ``should_stop``; called a few times a second."""
        self.poll()
        return should_stop()

    def feed(self, line: str) -> None:
        """Take a line of the listener; a malformed one is ignored."""
        with contextlib.suppress(ValidationError):
            self.last = report = ListenerReport.model_validate_json(line)
            self._reporter.at(report.query, report.completed, report.total, report.running, report.read)

    def report(self, percent: int, text: str) -> None:
        """Report the application's progress."""
        with contextlib.suppress(TransportError):  # the next will arrive, or it no longer matters
            self._progress({"percent": percent, "text": text, "spark": {**self._about, **self._known}})

    def finish(self) -> dict[str, Any]:
        """Report that the application succeeded, and return what belongs in its result."""
        self.poll()
        if self.last is None:
            return {}
        self.report(100, "done")
        return {**self._known, **self.last.totals}

    @property
    def _known(self) -> dict[str, str]:
        if self.last is None:
            return {}
        application = self.last.application
        return {"application": application} | (
            {"ui": self._ui.replace("{application}", application)} if self._ui else {}
        )


class ProgressReporter:
    """Reports an application's progress: at intervals, only changes, and never a lower percentage within a query.

    Args:
        report: Called with the percentage of the query's tasks, and a text.
        every_s: Seconds between two reports.
    """

    def __init__(self, report: Callable[[int, str], None], every_s: float = 0.5) -> None:
        self._report = report
        self._every_s = every_s
        self._most: dict[int, int] = {}
        self._last: tuple[int, str] | None = None
        self._next = 0.0

    def at(self, query: int, completed: int, total: int, running: int, read: float) -> None:
        """Record the application's progress.

        Args:
            query: The number of its query; each action runs one.
            completed: Number of the query's tasks that succeeded.
            total: Number of its tasks that are known.
            running: Number of its tasks that run now.
            read: Bytes that it read from its inputs.
        """
        if not total:
            return
        # Spark plans some stages late, which raises the total: never report a lower percentage than before.
        self._most[query] = percent = max(self._most.get(query, 0), 100 * completed // total)
        report = (percent, f"query {query}: {completed} of {total} tasks, {running} running, {_size(read)} read")
        if report != self._last and time.monotonic() >= self._next:
            self._last, self._next = report, time.monotonic() + self._every_s
            self._report(*report)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
