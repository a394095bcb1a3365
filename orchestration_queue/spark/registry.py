"""Which plain functions stand behind the names that are tasks by now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestration_queue.errors import InvalidOptionError

__all__ = ["reference", "register", "registered"]

_functions: dict[str, Callable[..., Any]] = {}


def reference(function: Callable[..., Any]) -> str:
    """A function's importable name, ``module:qualified.name``.

    Raises:
        InvalidOptionError: Another process could not import it under that name.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<unnamed>")
    if not module or module == "__main__" or "<" in name:
        raise InvalidOptionError(
            f"Spark work runs in a process of its own, which cannot import {name!r} from {module!r}; "
            "define the function at the top level of a module that is not the program itself."
        )
    return f"{module}:{name}"


def register(function: Callable[..., Any]) -> str:
    """Remember a function under its importable name, which is returned."""
    name = reference(function)
    _functions[name] = function
    return name


def registered(name: str) -> Callable[..., Any] | None:
    """The function remembered under a name."""
    return _functions.get(name)
