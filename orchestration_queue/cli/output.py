"""Standard streams of any encoding, closed or full: errors of writing results end in one sentence."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from contextlib import suppress
from typing import Any, TextIO

__all__ = ["OUTPUT_LOST", "READER_GONE", "OutputError", "drop_output", "prepare_streams"]

OUTPUT_LOST = 5
"""The exit code when standard output can't be written."""
READER_GONE = 128 + signal.SIGPIPE
"""The exit code when the reader of standard output has left, as of a program that SIGPIPE ends."""


class OutputError(OSError):
    """Standard output can't be written. Its ``errno`` is empty, since typer exits on a broken pipe by itself."""

    def __init__(self, error: OSError) -> None:
        self.reader_gone = error.errno == errno.EPIPE
        super().__init__(
            f"The output cannot be written ({error.strerror}), but what the command did is done; "
            "make room, or send the output elsewhere."
        )


class _Output(io.FileIO):
    """Standard output, told apart from other files by the error of writing to it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from None


class _Errors(io.FileIO):
    """Standard error, where a message that can't be written is lost: the exit code still says what happened."""

    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            super().write(data)
        return len(data)


def prepare_streams() -> None:
    """Replace characters that a stream's encoding lacks, discard output that has no file, and read UTF-8 arguments."""
    _fill_closed_descriptors()
    sys.stdout = _writer(sys.stdout or sys.__stdout__, _Output(1, "w", closefd=False), "replace")
    sys.stderr = _writer(sys.stderr or sys.__stderr__, _Errors(2, "w", closefd=False), "backslashreplace")
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115  for the life of the process
    sys.argv[1:] = map(_decode, sys.argv[1:])


def _writer(before: TextIO | None, file: io.FileIO, errors: str) -> io.TextIOWrapper:
    if not isinstance(before, io.TextIOWrapper):  # it was closed
        return io.TextIOWrapper(io.BufferedWriter(file), "utf-8", errors)
    return io.TextIOWrapper(
        io.BufferedWriter(file), before.encoding, errors, None, before.line_buffering, before.write_through
    )


def _decode(argument: str) -> str:
    """Read an argument as UTF-8 whatever the locale, which is C in many containers."""
    try:
        return os.fsencode(argument).decode()
    except UnicodeDecodeError:
        return argument


def _fill_closed_descriptors() -> None:
    """Open what the caller closed: a connection to the server would take the place of standard output otherwise."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def drop_output() -> None:
    """Discard what is buffered and what follows, so that the interpreter exits with the code that it is given."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
