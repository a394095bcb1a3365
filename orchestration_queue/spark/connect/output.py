"""What a job prints, apart from what its neighbours in other threads print."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

__all__ = ["printed_to"]

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
