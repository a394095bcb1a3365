"""The functions and programs that run as Spark work: their names, and checks of callers' arguments."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orchestration_queue.errors import InvalidOptionError, UsageError

__all__ = [
    "check_callbacks",
    "check_function",
    "check_program",
    "check_words",
    "name_of",
    "reference",
    "register",
    "registered",
]


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
        f"`arguments` of {what} {program} must be a list of strings without null characters; pass "
        "['--day', '2026-01-31']."
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


_functions: dict[str, Callable[..., Any]] = {}


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, ``module:qualified.name``."""
    return f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', '<unnamed>')}"


def reference(function: Callable[..., Any]) -> str:
    """Return the name by which another process imports a function, ``module:qualified.name``.

    Raises:
        InvalidOptionError: It cannot be imported.
    """
    module, _, name = (full := name_of(function)).partition(":")
    if module in ("None", "__main__") or "<" in name:
        raise InvalidOptionError(
            f"With runtime='process', Spark work runs in another process, which cannot import {name!r} from "
            f"{module!r}; define the function at the top level of an importable module, or use runtime='connect'."
        )
    return full


def register(function: Callable[..., Any]) -> str:
    """Register a function under its name, and return the name."""
    name = name_of(function)
    _functions[name] = function
    return name


def registered(name: str) -> Callable[..., Any] | None:
    """Return the function registered under a name; None without one."""
    return _functions.get(name)
