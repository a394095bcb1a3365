"""Summarize exceptions of PySpark, which can contain two hundred lines of Java. Pure."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from orchestration_queue.errors import SparkCancelledError, SparkFailedError, SparkTimeoutError

if TYPE_CHECKING:
    from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = ["LINES_KEPT", "SparkFailure", "describe_exit", "failure_error", "is_noise", "stop_error"]

_MESSAGE_LENGTH = 1_000
_FRAMES = 5

_NOISE = re.compile(
    r"\s+at [\w.$/@<>]+\(.*\)$"  # one frame of a Java stack
    r"|\s+\.\.\. \d+ more$"
    r"|WARNING: (Using incubator modules|package sun\.security\.action not in java\.base)"
    r"|WARNING: .*(sun\.misc\.Unsafe|restricted method|native access|terminally deprecated|java\.lang\.System::load)"
    r"|WARNING: (Please consider reporting|Use --enable-native-access|Restricted methods will be blocked)"
    r"|Setting default log level to"
    r"|To adjust logging level use"
    r"|\{.*\"logger\": \"(DataFrame|SQL)QueryContextLogger\""  # the exception that PySpark is about to raise, as JSON
)
_GRPC = re.compile(r'<_\w+ of RPC that terminated with:\n\s*status = .*\n\s*details = "(?P<details>.+)"')
_JAVA_EXCEPTION = re.compile(
    r'^(?:Exception in thread "[^"]*" (?P<kind>[\w.$]+)(?:: )?|Error: )(?P<message>.*)$', re.MULTILINE
)
_PREFACE = " An error occurred while calling"
_PYTHON_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_NOT_THE_USERS = re.compile(r"/(pyspark|py4j|orchestration_queue/spark)/|^<frozen|pyspark\.zip/|/runpy\.py$")


_ADVICE = (
    (re.compile("OutOfMemoryError|Java heap space|GC overhead limit"), "raise SparkOptions.memory, or collect less"),
    (re.compile(r"spark\.driver\.maxResultSize"), "write the result instead of collecting it, or raise that property"),
    (
        re.compile(r"INVALID_HANDLE\.SESSION_(CLOSED|NOT_FOUND)"),
        "another client closed the session, or no call reached the server in time: if it closes idle sessions early, "
        "raise its property spark.connect.session.manager.defaultSessionTimeout",
    ),
    (re.compile(r"INVALID_HANDLE\.SESSION_CHANGED"), "the server was restarted while the work ran; retry the job"),
)
"""What to do about failures that say nothing about it."""


def is_noise(line: str) -> bool:
    """Return whether a line of Spark's output carries no information, such as a frame of a Java stack."""
    return not line.strip() or _NOISE.match(line) is not None


def describe_exit(exit_code: int) -> str:
    """Describe an exit code, to follow a process's name."""
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    return f"was killed by {signal.Signals(-exit_code).name} (unless intended, the machine ran out of memory)"


@dataclass(frozen=True, slots=True)
class SparkFailure:
    """Why a run failed.

    Attributes:
        kind: The exception's type: ``ValueError``, ``AnalysisException``.
        message: Its text, without Java stacks.
        frames: Where in the user's code it was raised, innermost last, each as ``file:line in function``.
    """

    kind: str
    message: str
    frames: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> SparkFailure:
        """Read an exception of the user's code, of PySpark, or of Java."""
        traced = traceback.extract_tb(error.__traceback__)
        frames = _users((frame.filename, frame.lineno, frame.name) for frame in traced)
        text = str(error).strip()
        if details := _grpc_details(text):
            return cls(type(error).__name__, _cut(details), frames)
        if not _comes_from_spark(error):
            return cls(type(error).__name__, _cut(text), frames)
        if "Traceback (most recent call last):" in text:
            return cls._of_worker(text, frames)
        return cls(type(error).__name__, _cut(_first_line(text).rstrip(";")), frames)

    @classmethod
    def _of_worker(cls, text: str, frames: tuple[str, ...]) -> SparkFailure:
        """Find an exception inside a Python function that ran in one of Spark's own workers: that one is the cause."""
        lines = text.rpartition("Traceback (most recent call last):")[2].strip("\n").splitlines()
        body = next((at for at, line in enumerate(lines) if line and not line.startswith(" ")), len(lines) - 1)
        kind, _, message = lines[body].partition(":")
        if message.startswith(_PREFACE) and body + 1 < len(lines):
            message = lines[body + 1].removeprefix(": ")
        # PySpark may have put the worker's frames at the end of the driver's already.
        all_frames = tuple(dict.fromkeys((*frames, *_printed_frames(lines[:body]))))
        return cls(kind.rpartition(".")[2], _cut(message.strip()), all_frames[-_FRAMES:])

    @classmethod
    def of_output(cls, lines: Iterable[str]) -> SparkFailure | None:
        """Read the last Python or Java exception that a program printed; None without one."""
        text = "\n".join(lines)
        if "Traceback (most recent call last):" in text:
            return cls._of_worker(text, ())
        if not (found := list(_JAVA_EXCEPTION.finditer(text))):
            return None
        kind, message = found[-1].group("kind", "message")
        return cls((kind or "Error").rpartition(".")[2], _cut((message or "").strip()))

    def __str__(self) -> str:
        """Return type, message and location in one line."""
        text = f"{self.kind}: {self.message}" if self.message else self.kind
        where = f" ({self.frames[-1]})" if self.frames else ""
        advice = next((f"; {advice}" for pattern, advice in _ADVICE if pattern.search(text)), "")
        return f"{text}{where}{advice}"


def _comes_from_spark(error: BaseException) -> bool:
    return any(base.__module__.partition(".")[0] in {"pyspark", "py4j"} for base in type(error).__mro__)


def _grpc_details(text: str) -> str:
    """Return gRPC's details of an unreachable server, without its other nine lines."""
    found = _GRPC.match(text)
    return found["details"] if found else ""


def _printed_frames(lines: list[str]) -> tuple[str, ...]:
    found = (_PYTHON_FRAME.search(line) for line in lines)
    return _users((match["file"], match["line"], match["function"]) for match in found if match)


def _users(frames: Iterable[tuple[str, object, str]]) -> tuple[str, ...]:
    """Return the last frames of the user's code, from file, line and function of each."""
    return tuple(
        f"{file.rpartition('/')[2]}:{line} in {function}"
        for file, line, function in frames
        if not _NOT_THE_USERS.search(file)
    )[-_FRAMES:]


def _first_line(text: str) -> str:
    """Return the message: before the Java stack, the SQL text and the plan, and after py4j's preface."""
    lines = [line for line in text.splitlines() if not is_noise(line)]
    if len(lines) > 1 and lines[0].startswith(_PREFACE.lstrip()):
        return lines[1].removeprefix(": ")
    return lines[0] if lines else ""


def _cut(text: str) -> str:
    return text if len(text) <= _MESSAGE_LENGTH else text[:_MESSAGE_LENGTH] + "..."


LINES_KEPT = 300
"""How many of an application's last lines are searched for the reason of a failure."""

_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"


def stop_error(
    name: str, why: Literal["timeout", "cancelled"], options: SparkSubmit, how: str, *, exit_code: int | None = None
) -> SparkFailedError:
    """Return the error for an application that was stopped.

    Args:
        name: Its name.
        why: Why it was stopped.
        options: How it ran.
        how: How it was stopped.
        exit_code: Its driver's exit code, if known.
    """
    if why == "timeout":
        return SparkTimeoutError(
            f"Spark application {name!r} took longer than {options.timeout} and was stopped {how}; "
            "raise SparkSubmit.timeout if it may take longer.",
            exit_code=exit_code,
        )
    return SparkCancelledError(
        f"Spark application {name!r} was asked to stop, and was stopped {how}.", exit_code=exit_code
    )


def failure_error(
    name: str, how: str, lines: Sequence[str], options: SparkSubmit, *, exit_code: int | None = None
) -> SparkFailedError:
    """Return the error for an application that failed.

    Args:
        name: Its name.
        how: How it ended, as a predicate that follows the name.
        lines: The last lines it printed.
        options: How it ran.
        exit_code: Its driver's exit code, if known.
    """
    if any(_OUT_OF_MEMORY in line for line in lines):
        return SparkFailedError(
            f"The driver of Spark application {name!r} ran out of memory (its heap is {options.memory}); raise "
            "SparkSubmit.memory, or have it collect less.",
            kind="OutOfMemoryError",
            exit_code=exit_code,
        )
    if failure := SparkFailure.of_output(lines):
        return SparkFailedError(str(failure), kind=failure.kind, exit_code=exit_code)
    last = f"; its last line: {lines[-1][:500]}" if lines else ""
    return SparkFailedError(f"Spark application {name!r} {how}{last}", exit_code=exit_code)
