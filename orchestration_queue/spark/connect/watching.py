"""The watchdog that ends a job's session, and the capture of what the job's thread prints."""

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
_KEEP_S = 10.0
"""Between two uses of a session. Servers close one that is unused for an hour, or for what their operator sets."""


class SessionWatchdog:
    """Stops a run that must not continue, and keeps its session open, from another thread, until the context ends.

    Args:
        should_stop: Called ten times a second; true stops the run.
        server_is_alive: Called as often; false stops it, too.
        timeout: Stops it after this long.
        cut: Stops it. Called once, in the watchdog's thread.
        keep: Keeps the session open. Called there every ten seconds; it must not block.

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
        keep: Callable[[], None],
    ) -> None:
        self.stop_reason: StopReason | None = None
        self._should_stop, self._server_lives, self._cut, self._keep = should_stop, server_is_alive, cut, keep
        self._deadline = time.monotonic() + timeout.total_seconds() if timeout else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="oq-spark-watch", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread; wait for a running ``cut``."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        used_at = time.monotonic()
        while not self._over.wait(_LOOK_S):
            self.stop_reason = self._find_stop_reason()
            if self.stop_reason:
                self._cut()
                return
            if time.monotonic() - used_at > _KEEP_S:
                self._keep()
                used_at = time.monotonic()

    def _find_stop_reason(self) -> StopReason | None:
        if self._should_stop():
            return "cancelled"
        if self._deadline is not None and time.monotonic() > self._deadline:
            return "timeout"
        return None if self._server_lives() else "server"


_LONGEST = 16_384
"""A longer line is logged in pieces, so that output without line breaks does not fill the memory."""


class _LineBuffer:
    """Splits output into lines."""

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
    """Replaces standard output: passes each write to the job of the printing thread."""

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
    """Pass each line that this thread prints to ``log`` for as long as the context lasts.

    Threads that it starts print to the process's standard output.

    Args:
        log: Called with each line.
    """
    lines = _LineBuffer(log)
    token = _lines.set(lines)
    _count_users(+1)
    try:
        yield
    finally:
        _count_users(-1)
        _lines.reset(token)
        lines.finish()


def _count_users(change: int) -> None:
    """Install the replacement for the first user; remove it after the last, unless another was installed over it."""
    global _users
    with _lock:
        _users += change
        if _users and not isinstance(sys.stdout, _ThreadStream):
            sys.stdout = _ThreadStream(sys.stdout)  # __getattr__ supplies the other methods
        elif not _users and isinstance(sys.stdout, _ThreadStream):
            sys.stdout = sys.stdout.behind
