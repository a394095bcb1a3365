"""The base of all option values: the wire's limits, frozen validated models, one-sentence errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options.habits import option_advice

__all__ = [
    "FORBIDDEN_IN_NAMES",
    "MAX_COUNT",
    "MAX_NAME_LENGTH",
    "MAX_PRIORITY",
    "HashableDict",
    "OnWire",
    "Options",
    "name_problem",
    "suggestion",
]

# The wire's limits, which glide-mq's clients enforce as well.
MAX_PRIORITY = 2048
MAX_NAME_LENGTH = 256
MAX_COUNT = 2**31 - 1
"""The maximum of any count: all languages that use this wire represent it exactly."""
FORBIDDEN_IN_NAMES = frozenset("{}:")
_FORBIDDEN = re.compile(r"[{}:\x00-\x1f\x7f]")


V = TypeVar("V")


@dataclass(frozen=True)
class OnWire:
    """How an option that only this package knows is stored with a job. HTTP and `oq job add` follow it.

    Attributes:
        name: Its name among the stored options.
        read: Returns its value from what any client stored; its default for anything invalid.
        schema: The JSON schema of what is stored.
        write: Returns what is stored; None for nothing.
        metavar: What `oq job add` takes, for an option that is text or a number; None for one with a form of its own.
    """

    name: str
    read: Callable[[object], Any]
    schema: Mapping[str, Any]
    write: Callable[[Any], Any] = lambda value: value or None
    metavar: str | None = None


class HashableDict(dict[str, V]):
    """A dict that is never changed, so that it can be part of a key."""

    def __hash__(self) -> int:  # type: ignore[override]  # of a dict that stays as it is
        return hash(frozenset(self.items()))


def name_problem(name: object, longest: int = MAX_NAME_LENGTH) -> str | None:
    """Return why a queue, a job or another object can't have this name; None if it can."""
    if not isinstance(name, str):
        return "is not text"
    if not name:
        return "is empty"
    if len(name) > longest:
        return f"is longer than {longest} characters"
    if bad := _FORBIDDEN.search(name):
        return f"contains {bad[0]!r}"
    return None


def suggestion(word: object, known: Iterable[str]) -> str:
    """Return ``; use 'x'.`` for the known word closest to a misspelled one; empty if none is close."""
    close = get_close_matches(word, list(map(str, known)), n=1, cutoff=0.75) if isinstance(word, str) else []
    return f"; use {close[0]!r}." if close else ""


class Options(BaseModel):
    """Base of all option values: frozen, and strict about unknown names, with one-sentence errors.

    Wherever an option value is expected, a dict of its fields is accepted, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def __init__(self, *unnamed: Any, **values: Any) -> None:
        if unnamed:
            name, first = type(self).__name__, next(iter(type(self).model_fields))
            raise InvalidOptionError(
                f"{name} takes its fields by name, got {unnamed[0]!r}; pass `{name}({first}=...)`."
            )
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidOptionError(_sentence(type(self), error)) from None

    @classmethod
    def coerce(cls, value: Self | Mapping[str, Any] | None, what: str) -> Self:
        """Return option values passed as such, or as a dict of their fields; None returns the defaults.

        Args:
            value: The argument.
            what: Its name in errors, such as ``options``.

        Raises:
            InvalidOptionError: It is neither, or a field is invalid.
        """
        if isinstance(value, cls):
            return value
        if value is None:
            return cls()
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return cls(**value)
        raise InvalidOptionError(
            f"`{what}` must be {cls.__name__} or a dict of its fields, got {value!r}; "
            f"pass `{what}={cls.__name__}(...)`."
        )


def _sentence(owner: type[Options], error: ValidationError) -> str:
    """Return the first problem of a validation error as one sentence."""
    problem = error.errors()[0]
    if problem["type"] == "value_error" and isinstance(cause := problem["ctx"]["error"], UsageError):
        return str(cause)
    name = owner.__name__
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        advice = option_advice(where, owner.model_fields)
        hint = f"; use {advice}." if advice else suggestion(where, owner.model_fields)
        return f"{name} has no option {where!r}{hint or '; check its spelling.'}"
    if problem["type"] == "missing":
        return f"{name} needs `{where}`, which is missing; pass `{where}=...`."
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"].startswith(("timedelta", "time_delta")):
        message = f"must be a timedelta or seconds; pass `{problem['loc'][-1]}=5`"
    if problem["type"] in ("timezone_aware", "datetime_type", "datetime_parsing", "datetime_from_date_parsing"):
        message = f"must be a datetime with a time zone; pass `{problem['loc'][-1]}=datetime(..., tzinfo=UTC)`"
    if problem["type"] in ("literal_error", "enum"):
        message += suggestion(problem["input"], re.findall(r"'([^']+)'", problem["ctx"]["expected"])).removesuffix(".")
    if problem["type"] == "model_type":
        message = f"must be {problem['ctx']['class_name']} or a dict of its fields"
    given = f" (given {problem['input']!r})" if where else ""
    return f"{name}.{where}{given}: {message}." if where else f"{name}: {message}."
