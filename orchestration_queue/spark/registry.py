"""The plain functions behind names that now are tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestration_queue.errors import InvalidOptionError

__all__ = ["name_of", "reference", "register", "registered"]

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
            f"Spark work with runtime='process' runs in another process, which cannot import {name!r} from {module!r}; "
            "define the function at the top level of a module that is not the program itself, or use a Connect server."
        )
    return full


def register(function: Callable[..., Any]) -> str:
    """Remember a function under its name, which is returned."""
    name = name_of(function)
    _functions[name] = function
    return name


def registered(name: str) -> Callable[..., Any] | None:
    """The function remembered under a name."""
    return _functions.get(name)
