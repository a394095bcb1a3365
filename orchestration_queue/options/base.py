"""What all option values share: limits of the wire, frozen and checked models, one-sentence errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestration_queue.errors import InvalidOptionError, UsageError

__all__ = [
    "FORBIDDEN_IN_NAMES",
    "MAX_COUNT",
    "MAX_DURATION",
    "MAX_NAME_LENGTH",
    "MAX_PRIORITY",
    "NonNegative",
    "Options",
    "Positive",
    "milliseconds",
    "name_problem",
]

MAX_PRIORITY = 2048
MAX_NAME_LENGTH = 256
MAX_COUNT = 2**31 - 1
"""The highest count of anything: every language of this wire holds it exactly."""
FORBIDDEN_IN_NAMES = frozenset("{}:")

MAX_DURATION = timedelta(days=3650)
"""The longest delay: the wire's scores have room for a few decades beside the priority."""

NonNegative = Annotated[timedelta, Field(ge=timedelta(0), le=MAX_DURATION)]
Positive = Annotated[timedelta, Field(ge=timedelta(milliseconds=1), le=MAX_DURATION)]


def milliseconds(duration: timedelta) -> int:
    """The whole milliseconds of a duration, as the wire counts time."""
    return duration // timedelta(milliseconds=1)


def name_problem(name: str) -> str | None:
    """Why the wire cannot carry this name of a queue or job; None when it can."""
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"is longer than {MAX_NAME_LENGTH} characters"
    if bad := next((c for c in name if c in FORBIDDEN_IN_NAMES or ord(c) < 0x20 or ord(c) == 0x7F), None):
        return f"contains {bad!r}"
    return None


class Options(BaseModel):
    """Base of all option values: frozen, strict about unknown names, one-sentence errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidOptionError(_sentence(type(self).__name__, error)) from None


def _sentence(owner: str, error: ValidationError) -> str:
    """The first problem of a validation error, as one sentence."""
    problem = error.errors()[0]
    if problem["type"] == "value_error" and isinstance(cause := problem["ctx"]["error"], UsageError):
        return str(cause)
    where = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        return f"{owner} has no option {where!r}; check its spelling."
    given = "" if problem["type"] == "missing" or not where else f" (given {problem['input']!r})"
    return f"{owner}.{where}{given}: {message}." if where else f"{owner}: {message}."
