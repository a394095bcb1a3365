"""What runs beside a job's own thread: the watchdog that cuts its session, and the capture of what it prints."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Literal, Self, TextIO

__all__ = ["SessionWatchdog", "StopReason", "printed_to"]

StopReason = Literal["cancelled", "timeout", "server"]

_LOOK_S = 0.1


class SessionWatchdog:
    """Watches over one run until the context is left.

    Args:
        should_stop: Asked ten times a second; true stops the run.
        server_is_alive: Asked as often; false stops it, too.
        timeout: Stops it after this long.
        cut: What stops it. Called once, in the watching thread.

    Attributes:
        stop_reason: Why it was stopped; None when it was not.
    """

    def __init__(
        self,
        *,
        should_stop: Callable[[], bool],
        server_is_alive: Callable[[], bool],
        timeout: timedelta | None,
        cut: Callable[[], None],
    ) -> None:
        self.stop_reason: StopReason | None = None
        self._should_stop, self._server_lives, self._cut = should_stop, server_is_alive, cut
        self._deadline = time.monotonic() + timeout.total_seconds() if timeout else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="oq-spark-watch", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; a cut that is under way is waited for."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            self.stop_reason = self._find_stop_reason()
            if self.stop_reason:
                self._cut()
                return

    def _find_stop_reason(self) -> StopReason | None:
        if self._should_stop():
            return "cancelled"
        if self._deadline is not None and time.monotonic() > self._deadline:
            return "timeout"
        return None if self._server_lives() else "server"


_LONGEST = 16_384
"""A longer line is given out in pieces, so that output without an end costs no memory."""


class _LineBuffer:
    """Cuts what is written into lines."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._rest = ""

    def write(self, text: str) -> None:
        *lines, rest = (self._rest + text).replace("\r", "\n").split("\n")
        while len(rest) > _LONGEST:
            lines.append(rest[:_LONGEST])
            rest = rest[_LONGEST:]
        self._rest = rest
        for line in lines:
            if line:
                self._log(line)

    def finish(self) -> None:
        if self._rest:
            self._log(self._rest)
            self._rest = ""


_lines: ContextVar[_LineBuffer | None] = ContextVar("oq_spark_output", default=None)


class _ThreadStream:
    """Replaces standard output: passes each write to the job of the thread that prints."""

    def __init__(self, behind: TextIO) -> None:
        self.behind = behind

    def write(self, text: str) -> int:
        if (lines := _lines.get()) is None:
            return self.behind.write(text)
        lines.write(text)
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.behind, name)


_lock = threading.Lock()
_users = 0


@contextmanager
def printed_to(log: Callable[[str], None]) -> Iterator[None]:
    """Give out what this thread prints, a line at a time, for as long as the context lasts.

    Threads that it starts print where the process prints.

    Args:
        log: Receives each line.
    """
    lines = _LineBuffer(log)
    token = _lines.set(lines)
    _stand_in(+1)
    try:
        yield
    finally:
        _stand_in(-1)
        _lines.reset(token)
        lines.finish()


def _stand_in(change: int) -> None:
    """Install the replacement while a job prints; remove it unless another replacement was installed over it."""
    global _users
    with _lock:
        _users += change
        if _users and not isinstance(sys.stdout, _ThreadStream):
            sys.stdout = _ThreadStream(sys.stdout)  # what it lacks, __getattr__ has
        elif not _users and isinstance(sys.stdout, _ThreadStream):
            sys.stdout = sys.stdout.behind
