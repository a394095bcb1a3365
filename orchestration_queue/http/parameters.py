"""The rules of glide-mq's proxy for queries and bodies, with its sentences."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from orchestration_queue.http.messages import HttpError

__all__ = [
    "FINISHED",
    "JOB_STATES",
    "bounds",
    "choice",
    "count_of",
    "csv",
    "flag",
    "integer",
    "is_number",
    "number_field",
    "required_integer",
    "text_field",
]

JOB_STATES = ("waiting", "active", "delayed", "completed", "failed")
FINISHED = ("completed", "failed")
_SAFE = 2**53 - 1
_LARGEST = int(sys.float_info.max)
"""A longer row of digits is infinity to JavaScript."""


def is_number(value: object) -> TypeGuard[float]:
    """Whether JSON calls it a finite number."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _LARGEST
    return isinstance(value, float) and math.isfinite(value)


def integer(query: Mapping[str, str], name: str, least: int | None = None, *, or_last: bool = False) -> int | None:
    """Return a whole number of the query; None when it is absent.

    Args:
        query: The query.
        name: The parameter.
        least: Its minimum.
        or_last: Whether -1 is allowed as well, for the last one.
    """
    text = query.get(name)
    return None if text is None else _whole(text, name, least, or_last=or_last)


def _whole(text: str, name: str, least: int | None, *, or_last: bool = False) -> int:
    if not re.fullmatch(r"-?[0-9]+", text):
        raise HttpError(400, f"{name} must be an integer")
    if len(text) > 17 or abs(number := int(text)) > _SAFE:
        raise HttpError(400, f"{name} must be a safe integer")
    if least is not None and number < least and not (or_last and number == -1):
        raise HttpError(400, f"{name} must be >= {least}")
    return number


def required_integer(query: Mapping[str, str], name: str, least: int) -> int:
    """Return a whole number that the query must have."""
    if not query.get(name):
        raise HttpError(400, f"Missing required query param: {name}")
    return integer(query, name, least) or 0


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return a boolean of the query; False when it is absent."""
    text = query.get(name)
    if text in (None, "false", "0"):
        return False
    if text not in ("true", "1"):
        raise HttpError(400, f"{name} must be true or false")
    return True


def choice(query: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Return a word that the query must have, one of some."""
    text = query.get(name)
    if not text:
        raise HttpError(400, f"Missing required query param: {name}")
    if text not in choices:
        raise HttpError(400, f"{name} must be one of: {', '.join(choices)}")
    return text


def csv(query: Mapping[str, str], name: str) -> list[str] | None:
    """Return a list of the query; None when it has no items."""
    return [item for part in query.get(name, "").split(",") if (item := part.strip())] or None


def bounds(query: Mapping[str, str]) -> tuple[int, int | None]:
    """Return ``start`` and ``end`` of a page as an offset and a limit; the limit is None for all."""
    start = integer(query, "start", 0) or 0
    end = integer(query, "end", 0, or_last=True)
    return start, None if end is None or end == -1 else max(0, end - start + 1)


def count_of(body: Mapping[str, Any], query: Mapping[str, str], least: int) -> int | None:
    """Return ``count`` of the body if it is a number there, else of the query; None when neither has one."""
    count: object = body.get("count")
    if is_number(count):
        is_whole = isinstance(count, int) or (count == int(count) and abs(count) < 1e21)
        if not is_whole:
            raise HttpError(400, "count must be an integer")
        return _whole(str(int(count)), "count", least)
    return integer(query, "count", least)


def text_field(body: Mapping[str, Any], name: str, hint: str = "") -> str:
    """Return a non-empty text that the body must have."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise HttpError(400, f"Missing required field: {name}{hint}")
    return value


def number_field(body: Mapping[str, Any], name: str) -> float:
    """Return a number >= 0 that the body must have."""
    value: object = body.get(name)
    if not is_number(value) or value < 0:
        raise HttpError(400, f"Missing required field: {name} (non-negative number)")
    return value
