"""Options of the data source, and the queue that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.library import LIBRARIES, Library

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = ["ADDRESS_OPTIONS", "QueueAddress", "QueueNamed", "SourceOptions", "StreamKeys", "duration", "own_keys"]

ADDRESS_OPTIONS = ("queue", "prefix", "url", "urlVariable")
_DEFAULT_VARIABLE = "OQ_URL"


class QueueNamed(Protocol):
    """What the keys of every kind of queue have."""

    @property
    def queue(self) -> str:
        """The queue's name."""


class StreamKeys(QueueNamed, Protocol):
    """What the keys of queues on streams have."""

    @property
    def events(self) -> str:
        """The stream of events."""

    @property
    def stream(self) -> str:
        """The stream of ready jobs."""


K_co = TypeVar("K_co", bound=QueueNamed, covariant=True)


def own_keys(options: SourceOptions) -> Callable[[str], QueueKeys]:
    """Return what makes the keys of a queue of ours."""
    return lambda queue: QueueKeys(queue, options.text("prefix") or DEFAULT_PREFIX)


@dataclass(frozen=True)
class QueueAddress(Generic[K_co]):
    """A queue on a server.

    Attributes:
        keys: The queue's keys.
        url: The server, without a secret; None when a variable says it.
        variable: The environment variable that says it in each of Spark's processes.
        libraries: The function libraries that the queue needs.
    """

    keys: K_co
    url: str | None
    variable: str
    libraries: Sequence[Library] = LIBRARIES

    @classmethod
    def of(
        cls, options: SourceOptions, keys_of: Callable[[str], K_co], libraries: Sequence[Library] = LIBRARIES
    ) -> QueueAddress[K_co]:
        """Read it from the options ``queue`` (or a path), ``url`` and ``urlVariable``.

        Raises:
            InvalidNameError: The wire cannot carry the queue's name.
            UsageError: No queue is named, or the URL cannot be read, or carries a password.
        """
        queue = options.text("queue") or options.text("path")
        if queue is None:
            raise InvalidOptionError("No queue is named; say which by the option queue, or as the path.")
        keys = keys_of(queue)
        url, variable = options.text("url"), options.text("urlVariable")
        if url and variable:
            raise InvalidOptionError("Both url and urlVariable are given, and one would be ignored; give either.")
        variable = variable or _DEFAULT_VARIABLE
        shown = _shown(url) if url or not os.environ.get(variable) else None
        return cls(keys, shown, variable, libraries)

    def connect(self) -> Connection:
        """Connect.

        Raises:
            UsageError: The variable is not set in this process.
            TransportError: The server cannot be reached.
        """
        from orchestration_queue.server import Connection  # here, since planning needs none, and loading takes time

        url = self.url or os.environ.get(self.variable)
        if not url:
            raise InvalidOptionError(
                f"The variable {self.variable} says where queue {self.keys.queue!r} is on Spark's driver, but is not "
                f"set for its executors; set it there, for instance by spark.executorEnv.{self.variable}."
            )
        return Connection.open(url, libraries=self.libraries)


def _shown(url: str | None) -> str:
    """Return a URL that others may see. All processes of this machine share an embedded server's directory."""
    from orchestration_queue.server.url import parse_url

    parsed = parse_url(url)
    if parsed.password or parsed.sentinel_password:
        raise InvalidOptionError(
            "The option url carries a password, which Spark writes into plans and logs; put the URL into an "
            "environment variable of the driver and the executors, and pass that variable's name as urlVariable."
        )
    return str(parsed) if parsed.kind == "embedded" or url is None else url


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
        """Return an option's text; None when it is absent or empty."""
        return self._values.get(name.lower()) or None

    def names(self, name: str) -> list[str]:
        """Return a list of names, separated by commas; empty when absent."""
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
        """Return a positive whole number."""
        if (value := self.text(name)) is None:
            return default
        if not value.isdecimal() or not 1 <= int(value) <= most:
            raise InvalidOptionError(
                f"{self._what}'s option {name} is {value!r}; use a whole number from 1 to {most:,}."
            )
        return int(value)


def duration(text: str, name: str) -> timedelta:
    """Return a duration such as ``90s``, ``250ms`` or ``2h``.

    Raises:
        InvalidOptionError: The text is not a duration.
    """
    found = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|h|d)", text.strip())
    if not found:
        raise InvalidOptionError(f"The option {name} is {text!r}; write a duration such as 500ms, 90s, 5m, 2h or 1d.")
    return timedelta(milliseconds=int(found[1]) * _UNITS_MS[found[2]])
