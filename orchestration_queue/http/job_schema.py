"""The schema of a job in answers of own routes, from the properties that every view shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from orchestration_queue.protocol.record import SHOWN, JobRecord

__all__ = ["job_schema"]

_KINDS: tuple[tuple[type, dict[str, Any]], ...] = (
    (str, {"type": "string"}),
    (bool, {"type": "boolean"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (Mapping, {"type": "object"}),
    (Sequence, {"type": "array"}),
)


def job_schema() -> dict[str, Any]:
    """Return the schema of a job; only an answer about one job has its traceback and history."""
    shown = {name: _schema(*_hint(of)) for name, of in SHOWN.items()}
    return {"type": "object", "properties": {"queue": {"type": "string"}} | shown}


def _hint(name: str) -> tuple[Any, str]:
    """Return the type of a property of a record, and what it is."""
    found = vars(JobRecord).get(name)
    if isinstance(found, property | cached_property):
        getter = found.func if isinstance(found, cached_property) else found.fget
        return get_type_hints(getter)["return"], (getter.__doc__ or "").strip().split("\n")[0].replace("None", "null")
    return get_type_hints(JobRecord)[name], ""


def _schema(hint: Any, what: str) -> dict[str, Any]:
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    (kind,) = (choice for choice in choices if choice is not NoneType)
    kind = get_origin(kind) or kind
    schema = next((dict(found) for known, found in _KINDS if isinstance(kind, type) and issubclass(kind, known)), {})
    if NoneType in choices and schema:
        schema["type"] = [schema["type"], "null"]
    return schema | ({"description": what} if what else {})
