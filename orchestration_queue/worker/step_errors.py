"""Errors that are the stored results of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestration_queue.errors import Failed, PayloadError
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.outcome import reason_of

__all__ = ["dump_error", "rebuild_error"]

_KIND_LENGTH = 100


def dump_error(error: Exception, base: type[Exception]) -> str:
    """Return an error as it is stored, with the class of ``store_errors`` that names it."""
    described = {"type": _class_name(type(error)), "base": _class_name(base), "reason": reason_of(error)}
    try:
        return codec.encode({**described, "args": error.args}, "The error")
    except PayloadError:
        return codec.encode({**described, "args": [described["reason"]]}, "The error")


def rebuild_error(stored: Any, store_errors: Sequence[type[Exception]]) -> Exception:
    """Return a stored error, of the class that it had if the step still names it."""
    base = next((base for base in store_errors if _class_name(base) == stored["base"]), None)
    if base is None:
        return Failed(stored["reason"], kind=stored["type"][:_KIND_LENGTH])
    kind = _find_class(base, stored["type"]) or base
    try:
        return kind(*stored["args"])
    except Exception:
        # Its __init__ takes other arguments than `args`.
        return kind.__new__(kind, *stored["args"])


def _find_class(base: type[Exception], name: str) -> type[Exception] | None:
    if _class_name(base) == name:
        return base
    return next((found for kind in base.__subclasses__() if (found := _find_class(kind, name))), None)


def _class_name(kind: type[Exception]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
