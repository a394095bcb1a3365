"""Catching all that a process writes, below Python: its output goes straight to files, and one thread follows these.

A pipe would do without files, but a writer that holds the interpreter's lock while the pipe is full would wait for the
thread that cannot read it. A file is never full, is there when the process is killed, and needs no helper process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

__all__ = ["CapturedOutput", "OutputReader", "alone", "redirected"]

_INTERVAL_S = 0.2
_CHUNK = 64 * 1024

_guard = threading.Lock()
_capturing_process = 0


@contextmanager
def alone() -> Iterator[bool]:
    """Claim the capture of this process's output, which all threads share; yield whether it was free."""
    global _capturing_process
    with _guard:
        is_alone = _capturing_process != os.getpid()
        _capturing_process = os.getpid()
    try:
        yield is_alone
    finally:
        if is_alone:
            _capturing_process = 0


@contextmanager
def redirected(stream: IO[str], number: int, to: int) -> Iterator[int | None]:
    """Have what this process writes to one of its outputs go elsewhere, and that of its children too.

    Args:
        stream: The output as Python has it; it may write to another file than the process's own output does.
        number: The process's own output: 1 or 2.
        to: The open file that takes it.

    Yields:
        Where the output went before; None when it was closed.
    """
    kept: dict[int, int] = {}
    stream.flush()
    for place in {number, _number_of(stream)}:
        with suppress(OSError):  # closed, as a daemon's may be
            kept[place] = os.dup(place)
            os.dup2(to, place)
    try:
        yield kept.get(number)
    finally:
        stream.flush()
        for place, before in kept.items():
            os.dup2(before, place)
            os.close(before)


def _number_of(stream: IO[str]) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):  # a replacement that writes to memory
        return -1


@dataclass(slots=True)
class CapturedOutput:
    """One of the captured outputs.

    Attributes:
        file: The file that takes it.
        offset: How far it was passed on.
        taker: Called with what is new, as offset and bytes; called again with the same when it raises.
    """

    file: int
    offset: int
    taker: Callable[[int, bytes], None]

    def pass_on(self, most: int | None = None) -> None:
        """Pass on what is new.

        Args:
            most: The number of last bytes to keep; those before are left out.
        """
        end = os.fstat(self.file).st_size
        if most is not None:
            self.offset = max(self.offset, end - most)
        while self.offset < end and (data := os.pread(self.file, min(_CHUNK, end - self.offset), self.offset)):
            self.taker(self.offset, data)
            self.offset += len(data)


class OutputReader:
    """A thread that passes on what is written to captured files, a few times a second.

    Args:
        outputs: The files, and who gets what is new in them.
        most: Of a backlog, how many bytes are passed on.
    """

    def __init__(self, outputs: Sequence[CapturedOutput], most: int) -> None:
        self._outputs = outputs
        self._most = most
        self._must_stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="oq-compute-logs", daemon=True)
        self.fault: Exception | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and pass on what is left; then :attr:`fault` says why that was not possible, if so."""
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
