"""What is said of an application that ended badly, wherever its driver was. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from orchestration_queue.errors import SparkCancelledError, SparkFailedError, SparkTimeoutError
from orchestration_queue.spark.failure import Failure
from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = ["LINES_KEPT", "failure_error", "stop_error"]

LINES_KEPT = 300
"""Of an application's last words, in which the reason is looked for."""

_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"


def stop_error(
    name: str, why: Literal["timeout", "cancelled"], options: SparkSubmit, how: str, *, exit_code: int | None = None
) -> SparkFailedError:
    """An application that we stopped.

    Args:
        name: Its name.
        why: Why we did.
        options: How it ran.
        how: What was done.
        exit_code: That of its driver, if it can be known.
    """
    if why == "timeout":
        return SparkTimeoutError(
            f"Spark application {name!r} took longer than {options.timeout} and was stopped {how}; "
            "raise SparkSubmit.timeout if it may take longer.",
            exit_code=exit_code,
        )
    return SparkCancelledError(
        f"Spark application {name!r} was told to stop, and was stopped {how}.", exit_code=exit_code
    )


def failure_error(
    name: str, how: str, lines: Sequence[str], options: SparkSubmit, *, exit_code: int | None = None
) -> SparkFailedError:
    """An application that ended by itself.

    Args:
        name: Its name.
        how: How it ended, to follow the name.
        lines: Its last words.
        options: How it ran.
        exit_code: That of its driver, if it can be known.
    """
    if any(_OUT_OF_MEMORY in line for line in lines):
        return SparkFailedError(
            f"The driver of Spark application {name!r} was out of memory (its heap is {options.memory}); raise "
            "SparkSubmit.memory, or have it collect less.",
            kind="OutOfMemoryError",
            exit_code=exit_code,
        )
    if failure := Failure.of_output(lines):
        return SparkFailedError(str(failure), kind=failure.kind, exit_code=exit_code)
    said = f"; its last words: {lines[-1][:500]}" if lines else ""
    return SparkFailedError(f"Spark application {name!r} {how}{said}", exit_code=exit_code)
