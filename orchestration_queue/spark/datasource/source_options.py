"""Options as Spark hands them over: texts by names whose case does not matter."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from difflib import get_close_matches

from orchestration_queue.errors import InvalidOptionError

__all__ = ["SourceOptions", "duration"]

_SPARKS_OWN = frozenset({"path", "checkpointlocation"})
"""Options that are Spark's, although sources see them; a path is another way to name the queue."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class SourceOptions:
    """The options of one read or write.

    Args:
        options: By name, as texts.
        known: The names that mean something.
        what: What they are options of, for messages.

    Raises:
        InvalidOptionError: One has no meaning here.
    """

    def __init__(self, options: Mapping[str, str], known: Collection[str], what: str) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._what = what
        meant = {name.lower() for name in known} | _SPARKS_OWN
        if strange := next((name for name in self._values if name not in meant), None):
            close = get_close_matches(strange, {name.lower(): name for name in known}, 1)
            meant_name = next((f"did you mean {name}? It" for name in known if name.lower() in close), "it")
            raise InvalidOptionError(f"{what} has no option {strange!r}; {meant_name} has {', '.join(known)}.")

    def text(self, name: str) -> str | None:
        """An option's text; None when it is absent or empty."""
        return self._values.get(name.lower()) or None

    def names(self, name: str) -> list[str]:
        """A list of names, separated by commas; empty when absent."""
        return [word.strip() for word in (self.text(name) or "").split(",") if word.strip()]

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """One of several words."""
        if (value := (self.text(name) or default)) not in choices:
            raise InvalidOptionError(f"{self._what}'s option {name} is {value!r}; use one of {', '.join(choices)}.")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Yes or no."""
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise InvalidOptionError(f"{self._what}'s option {name} is {value!r}; use true or false.")
        return value == "true"

    def count(self, name: str, default: int | None, most: int) -> int | None:
        """A positive whole number."""
        if (value := self.text(name)) is None:
            return default
        if not value.isdecimal() or not 1 <= int(value) <= most:
            raise InvalidOptionError(
                f"{self._what}'s option {name} is {value!r}; use a whole number from 1 to {most:,}."
            )
        return int(value)


def duration(text: str, name: str) -> timedelta:
    """A duration such as ``90s``, ``250ms`` or ``2h``.

    Raises:
        InvalidOptionError: The text is not a duration.
    """
    found = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|h|d)", text.strip())
    if not found:
        raise InvalidOptionError(f"The option {name} is {text!r}; write a duration such as 500ms, 90s, 5m, 2h or 1d.")
    return timedelta(milliseconds=int(found[1]) * _UNITS_MS[found[2]])
