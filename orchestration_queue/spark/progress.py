"""How far Spark is, as a job's progress, and the listener that says so from within an application's driver.

The listener (its source is in java/) needs no change to the application and no network: it writes to a file of the run,
or where no file is visible to both sides, into the driver's log.
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
"""What begins its lines in a driver's log."""

_CLASS = "orchestrationqueue.ProgressListener"
_TARGET = "spark.orchestration_queue.progress"


class ListenerReport(BaseModel):
    """What the listener knows of an application."""

    model_config = ConfigDict(frozen=True)

    application: str
    """Its id."""
    query: int
    """The number of its newest query: of what one action runs."""
    total: int
    completed: int
    running: int
    """Tasks of that query."""
    read: int
    """Bytes that the query has read."""
    input_rows: int
    input_bytes: int
    output_rows: int
    output_bytes: int
    """What all its tasks that succeeded have read from outside and written there."""

    @property
    def totals(self) -> dict[str, int]:
        """Rows and bytes, as a result has them."""
        return self.model_dump(include={"input_rows", "input_bytes", "output_rows", "output_bytes"})


def with_listener(properties: Mapping[str, str], target: str, jar: str = str(LISTENER_JAR)) -> dict[str, str]:
    """Spark's properties with the listener added to what the user wants there.

    Args:
        properties: The properties.
        target: The file that the listener writes; or ``stderr``.
        jar: Where the driver finds the listener.
    """
    # Not by the class path of Spark itself: an archive of classes would no longer fit.
    ours = {"spark.jars": jar, "spark.extraListeners": _CLASS}
    lists = {name: ",".join(filter(None, (properties.get(name), value))) for name, value in ours.items()}
    return {**properties, **lists, _TARGET: target}


class ListenerFollower:
    """Follows what the listener tells, and hands it on as a job's progress.

    Args:
        progress: Receives ``percent``, ``text``, and under ``spark`` what is known of the application.
        file: What the listener writes; None if its lines come some other way.
        about: What is known of the application before it says anything.
        ui: Spark's page of it, with ``{application}`` in place of its id.

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
        self._reporter = ProgressReporter(self.tell)

    def poll(self) -> None:
        """Read the file, if there is something new."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if self._file and (line := self._file.read_text("utf-8")) != self._seen:
                self._seen = line
                self.feed(line)

    def poll_and_ask(self, should_stop: Callable[[], bool]) -> bool:
        """Read the file and return whether to stop; called a few times a second."""
        self.poll()
        return should_stop()

    def feed(self, line: str) -> None:
        """Take a line of the listener's; one that is broken is passed over."""
        with contextlib.suppress(ValidationError):
            self.last = report = ListenerReport.model_validate_json(line)
            self._reporter.at(report.query, report.completed, report.total, report.running, report.read)

    def tell(self, percent: int, text: str) -> None:
        """Hand on how far the application is."""
        with contextlib.suppress(TransportError):  # the next will arrive, or it no longer matters
            self._progress({"percent": percent, "text": text, "spark": {**self._about, **self._known}})

    def finish(self) -> dict[str, Any]:
        """Report that the application succeeded, and return what belongs in its result."""
        self.poll()
        if self.last is None:
            return {}
        self.tell(100, "done")
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
    """Reports how far an application is: at intervals, only changes, and never a lower percentage within a query.

    Args:
        tell: Receives a percentage of the query's tasks, and a text.
        every_s: Seconds between two times.
    """

    def __init__(self, tell: Callable[[int, str], None], every_s: float = 0.5) -> None:
        self._tell = tell
        self._every_s = every_s
        self._most: dict[int, int] = {}
        self._told: tuple[int, str] | None = None
        self._next = 0.0

    def at(self, query: int, completed: int, total: int, running: int, read: float) -> None:
        """Take how far the application is.

        Args:
            query: The number of its query: of what one action runs.
            completed: How many of its tasks have succeeded.
            total: How many there are, as far as is known.
            running: How many run now.
            read: Bytes that it has read from its inputs.
        """
        if not total:
            return
        # Spark plans some stages late, and then there is more to do; what was told is not taken back.
        self._most[query] = percent = max(self._most.get(query, 0), 100 * completed // total)
        told = (percent, f"query {query}: {completed} of {total} tasks, {running} running, {_size(read)} read")
        if told != self._told and time.monotonic() >= self._next:
            self._told, self._next = told, time.monotonic() + self._every_s
            self._tell(*told)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
