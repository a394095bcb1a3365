"""Check callers' arguments before anything starts."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orchestration_queue.errors import InvalidOptionError, UsageError

__all__ = ["check_callbacks", "check_function", "check_program", "check_words"]


def check_program(program: str | Path, what: str) -> str:
    """Return a program's path or URI as text.

    Raises:
        InvalidOptionError: It is neither.
    """
    if isinstance(program, str | os.PathLike) and (path := os.fspath(program)) and "\0" not in path:
        return path
    raise InvalidOptionError(f"The {what} must be the path of a program, got {program!r}; pass 'jobs/nightly.py'.")


def check_words(program: object, arguments: object, what: str) -> list[str]:
    """Return a program's arguments.

    Raises:
        InvalidOptionError: They are not a list of strings.
    """
    if isinstance(arguments, Sequence) and not isinstance(arguments, str | bytes):
        words = list(arguments)
        if all(isinstance(word, str) and "\0" not in word for word in words):
            return words
    raise InvalidOptionError(
        f"`arguments` of {what} {program} must be a list of strings; pass ['--day', '2026-01-31']."
    )


def check_callbacks(**callbacks: object) -> None:
    """Refuse callbacks that are not callable.

    Raises:
        InvalidOptionError: One of them is not.
    """
    for name, callback in callbacks.items():
        if not callable(callback):
            raise InvalidOptionError(f"`{name}` must be a function, got {callback!r}; pass one, or leave it out.")


def check_function(function: Callable[..., Any]) -> None:
    """Refuse objects that cannot run as Spark work.

    Raises:
        UsageError: It is not a function, or a coroutine function.
    """
    if not callable(function) or isinstance(function, type):
        raise UsageError(f"Spark work must be a function f(spark, ...), got {function!r}; decorate one.")
    if inspect.iscoroutinefunction(function):
        raise UsageError(
            f"Spark function {function.__qualname__} must not be a coroutine function, because it runs in a thread; "
            "define it with `def`."
        )
