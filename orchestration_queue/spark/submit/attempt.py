"""One attempt to run an application on another machine: when it must stop, and how long to retry requests."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal, ParamSpec, TypeVar

from orchestration_queue.errors import SparkFailedError, TransportError
from orchestration_queue.options import seconds
from orchestration_queue.spark.failure import LINES_KEPT
from orchestration_queue.spark.submit.http import MasterUnreachableError
from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = ["ASK_S", "Attempt", "EndedByOthersError", "growing_pauses"]

P = ParamSpec("P")
R = TypeVar("R")

ASK_S = 0.1
"""Seconds between two calls of ``should_stop``."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0
_AWAY_S = 60.0
"""How long a master may be unreachable, as when another takes over."""


class EndedByOthersError(Exception):
    """The application of an earlier attempt was ended while this one followed it.

    The earlier attempt's worker does so if it was only slow: it learns that it has lost the job, and stops.
    """


class Attempt:
    """One attempt.

    Args:
        name: The application's name.
        options: How it runs, complete.
        should_stop: Called ten times a second.
        log: Called with each line that its driver prints.
        progress: Called with the job's progress.
    """

    def __init__(
        self,
        name: str,
        options: SparkSubmit,
        should_stop: Callable[[], bool],
        log: Callable[[str], None],
        progress: Callable[[dict[str, Any]], None],
    ) -> None:
        self.name = name
        self._options, self._progress, self._log = options, progress, log
        self._should_stop = should_stop
        self._deadline = time.monotonic() + seconds(options.timeout) if options.timeout else None
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._is_resumed = False

    def forget(self) -> None:
        """Clear the reservation, since nothing was submitted, so that the next attempt does not search for it."""
        with contextlib.suppress(TransportError):
            self._progress({"percent": 0, "text": "not submitted", "spark": {}})

    def _record(self, line: str) -> None:
        self._lines.append(line)
        self._log(line)

    def _with_retries(self, ask: Callable[P, R], *about: P.args, **more: P.kwargs) -> R:
        """Send a request to a master that may be unreachable for a moment."""
        give_up = time.monotonic() + _AWAY_S
        pauses = growing_pauses()
        while True:
            try:
                return ask(*about, **more)
            except MasterUnreachableError as error:
                problem = f"The master of Spark application {self.name!r} is unreachable ({error}), "
                if self._pause(next(pauses)):
                    raise SparkFailedError(
                        f"{problem}so the application could not be stopped; its driver may still run."
                    ) from None
                if time.monotonic() > give_up:
                    raise SparkFailedError(
                        f"{problem}and may run a driver of this job; the next attempt searches for it."
                    ) from None

    def _pause(self, seconds: float) -> Literal["timeout", "cancelled"] | None:
        """Wait, and return early with the reason if the attempt must stop."""
        over = time.monotonic() + seconds
        while not (why := self._why_stop()) and (left := over - time.monotonic()) > 0:
            time.sleep(min(ASK_S, left))
        return why

    def _why_stop(self) -> Literal["timeout", "cancelled"] | None:
        if self._should_stop():
            return "cancelled"
        return "timeout" if self._deadline is not None and time.monotonic() > self._deadline else None


def growing_pauses() -> Iterator[float]:
    """Yield the seconds of pauses that grow up to a maximum."""
    seconds = _FIRST_PAUSE_S
    while True:
        yield seconds
        seconds = min(_LONGEST_PAUSE_S, seconds * 1.5)
