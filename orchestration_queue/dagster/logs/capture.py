"""Capture a process's output at the level of file descriptors: it goes to files, which one thread reads.

A pipe would need no files, but a writer that holds the interpreter's lock while the pipe is full would wait for the
thread that cannot read it. A file is never full, survives a killed process, and needs no helper process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

__all__ = ["CapturedOutput", "OutputReader", "claim_output", "redirect"]

_INTERVAL_S = 0.2
_CHUNK = 64 * 1024

_guard = threading.Lock()
_capturing_process = 0


@contextmanager
def claim_output() -> Iterator[bool]:
    """Claim the capture of this process's output, which all threads share; yield whether it was free."""
    global _capturing_process
    with _guard:
        # A fork inherits the variable, but not the thread that reads the output.
        was_free = _capturing_process != os.getpid()
        _capturing_process = os.getpid()
    try:
        yield was_free
    finally:
        if was_free:
            _capturing_process = 0


@contextmanager
def redirect(stream: IO[str], number: int, to: int) -> Iterator[int | None]:
    """Redirect an output of this process and its children to a file.

    Args:
        stream: Python's stream for the output; it may have another file descriptor than the output itself.
        number: The file descriptor of the output: 1 or 2.
        to: The open file.

    Yields:
        A duplicate of the previous file descriptor; None if it was closed.
    """
    previous: dict[int, int] = {}
    stream.flush()
    for place in {number, _number_of(stream)}:
        with suppress(OSError):  # closed, as a daemon's may be
            previous[place] = os.dup(place)
            os.dup2(to, place)
    try:
        yield previous.get(number)
    finally:
        stream.flush()
        for place, before in previous.items():
            os.dup2(before, place)
            os.close(before)


def _number_of(stream: IO[str]) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):  # a replacement that writes to memory
        return -1


@dataclass(slots=True)
class CapturedOutput:
    """One captured output.

    Attributes:
        file: The file with the output.
        offset: The end of the output that was passed on.
        taker: Called with the offset and the bytes of new output; called again with the same if it raises.
    """

    file: int
    offset: int
    taker: Callable[[int, bytes], None]

    def pass_on(self, most: int | None = None) -> None:
        """Pass on new output.

        Args:
            most: Skip all but this number of last bytes.
        """
        end = os.fstat(self.file).st_size
        if most is not None:
            self.offset = max(self.offset, end - most)
        while self.offset < end and (data := os.pread(self.file, min(_CHUNK, end - self.offset), self.offset)):
            self.taker(self.offset, data)
            self.offset += len(data)


class OutputReader:
    """A thread that passes on new output a few times a second.

    Args:
        outputs: The captured outputs.
        most: Maximum bytes of a backlog to pass on.
    """

    def __init__(self, outputs: Sequence[CapturedOutput], most: int) -> None:
        self._outputs = outputs
        self._most = most
        self._must_stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="oq-compute-logs", daemon=True)
        self.fault: Exception | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and pass on the remaining output; if that fails, :attr:`fault` is the exception."""
        self._must_stop.set()
        self._thread.join()
        self._pass_on()

    def _follow(self) -> None:
        while not self._must_stop.wait(_INTERVAL_S):
            self._pass_on()

    def _pass_on(self) -> None:
        self.fault = None
        for output in self._outputs:
            try:
                output.pass_on(self._most)
            except Exception as fault:  # the step continues without its logs; they are retried
                self.fault = fault
