"""Parse options of the data source, and connect to the queue that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.library import LIBRARIES, Library

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestration_queue.server import Connection

__all__ = [
    "ADDRESS_OPTIONS",
    "QueueAddress",
    "QueueNamed",
    "SourceOptions",
    "StreamKeys",
    "duration",
    "limit_rows",
    "own_keys",
    "read_limit",
    "refuse_limit",
]

ADDRESS_OPTIONS = ("queue", "prefix", "url", "urlVariable")
_DEFAULT_VARIABLE = "OQ_URL"


class QueueNamed(Protocol):
    """The keys of a queue of any kind."""

    @property
    def queue(self) -> str:
        """The queue's name."""


class StreamKeys(QueueNamed, Protocol):
    """The keys of a queue that uses streams."""

    @property
    def events(self) -> str:
        """The stream of events."""

    @property
    def stream(self) -> str:
        """The stream of ready jobs."""


K_co = TypeVar("K_co", bound=QueueNamed, covariant=True)


def own_keys(options: SourceOptions) -> Callable[[str], QueueKeys]:
    """Return a function from a queue's name to its keys, with the prefix of the options."""
    return lambda queue: QueueKeys(queue, options.text("prefix") or DEFAULT_PREFIX)


@dataclass(frozen=True)
class QueueAddress(Generic[K_co]):
    """A queue on a server.

    Attributes:
        keys: The queue's keys.
        url: The server's URL, without a secret; None when it is in a variable.
        variable: The environment variable with the URL in each of Spark's processes.
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
            UsageError: No queue is named, or the URL is invalid or contains a password.
        """
        queue = options.text("queue") or options.text("path")
        if queue is None:
            raise InvalidOptionError(
                "Option queue is missing; pass .option('queue', 'emails'), or the name as the path."
            )
        keys = keys_of(queue)
        url, variable = options.text("url"), options.text("urlVariable")
        if url and variable:
            raise InvalidOptionError("Options url and urlVariable exclude each other; pass one of them.")
        variable = variable or _DEFAULT_VARIABLE
        shown = _hide_secrets(url) if url or not os.environ.get(variable) else None
        return cls(keys, shown, variable, libraries)

    def connect(self) -> Connection:
        """Connect to the server.

        Raises:
            UsageError: The variable is not set in this process.
            TransportError: The server cannot be reached.
        """
        from orchestration_queue.server import Connection  # lazily, because planning needs no connection

        url = self.url or os.environ.get(self.variable)
        if not url:
            raise InvalidOptionError(
                f"The variable {self.variable} with the URL of queue {self.keys.queue!r} is set on Spark's driver, but "
                f"not on this executor; set it there, for example with spark.executorEnv.{self.variable}."
            )
        return Connection.open(url, libraries=self.libraries)


def _hide_secrets(url: str | None) -> str:
    """Return a URL that may appear in plans and logs; that of an embedded server has its absolute directory."""
    from orchestration_queue.server.url import parse_url

    parsed = parse_url(url)
    if parsed.password or parsed.sentinel_password:
        raise InvalidOptionError(
            "Option url must not contain a password, because Spark writes options to plans and logs; put the URL into "
            "an environment variable of the driver and the executors, and pass that variable's name as urlVariable."
        )
    return str(parsed) if parsed.kind == "embedded" or url is None else url


_SPARKS_OWN = frozenset({"path", "checkpointlocation"})
"""Spark's own options, which sources receive, too; a path is another way to name the queue."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class SourceOptions:
    """The options of one read or write.

    Args:
        options: The options as strings, by name.
        known: The valid names.
        what: What they are options for, in error messages.

    Raises:
        InvalidOptionError: An option is unknown.
    """

    def __init__(self, options: Mapping[str, str], known: Collection[str], what: str) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._what = what
        valid = {name.lower() for name in known} | _SPARKS_OWN
        if unknown := next((name for name in self._values if name not in valid), None):
            close = get_close_matches(unknown, {name.lower(): name for name in known}, 1)
            hint = next((f"did you mean {name}? Use" for name in known if name.lower() in close), "use")
            raise InvalidOptionError(f"Unknown option {unknown!r} for {what}; {hint} {', '.join(known)}.")

    def text(self, name: str) -> str | None:
        """Return an option's text; None when it is absent or empty."""
        return self._values.get(name.lower()) or None

    def names(self, name: str) -> list[str]:
        """Return a list of names, separated by commas; empty when absent."""
        return [word.strip() for word in (self.text(name) or "").split(",") if word.strip()]

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """Return one of several words."""
        if (value := (self.text(name) or default)) not in choices:
            raise InvalidOptionError(
                f"Option {name} for {self._what} must be one of {', '.join(choices)}, got {value!r}; "
                f"pass .option({name!r}, {default!r})."
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise InvalidOptionError(
                f"Option {name} for {self._what} must be true or false, got {value!r}; pass .option({name!r}, True)."
            )
        return value == "true"

    def count(self, name: str, default: int | None, most: int) -> int | None:
        """Return a positive integer."""
        if (value := self.text(name)) is None:
            return default
        if not value.isdecimal() or not 1 <= int(value) <= most:
            raise InvalidOptionError(
                f"Option {name} for {self._what} must be an integer from 1 to {most:,}, got {value!r}; "
                f"pass .option({name!r}, {default or 1})."
            )
        return int(value)


def duration(text: str, name: str) -> timedelta:
    """Return a duration such as ``90s``, ``250ms`` or ``2h``.

    Raises:
        InvalidOptionError: The text is not a duration.
    """
    found = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|h|d)", text.strip())
    if not found:
        raise InvalidOptionError(f"Option {name} must be a duration, got {text!r}; pass 500ms, 90s, 5m, 2h or 1d.")
    return timedelta(milliseconds=int(found[1]) * _UNITS_MS[found[2]])


_MOST_ROWS = 1_000_000


def read_limit(given: SourceOptions) -> int | None:
    """Return the option ``limit``: the maximum rows of a batch read; None for all.

    Raises:
        UsageError: It is not an integer from 1 to 1,000,000.
    """
    return given.count("limit", None, _MOST_ROWS)


def limit_rows(reader: DataSourceReader, limit: int | None) -> DataSourceReader:
    """Return a reader of at most ``limit`` rows; without a limit, the same reader."""
    return LimitedReader(reader, limit) if limit else reader


def refuse_limit(limit: int | None) -> None:
    """Raise an InvalidOptionError if a stream has the option ``limit``."""
    if limit:
        raise InvalidOptionError("Option limit applies to batch reads only; use maxRowsPerTrigger for a stream.")


@dataclass
class AllPartitions(InputPartition):
    """All partitions of another reader, for one task."""

    each: Sequence[InputPartition]


class LimitedReader(DataSourceReader):
    """Reads the first rows of another reader, in one task, and stops after the batch with the last one.

    Args:
        reader: Yields record batches.
        limit: Maximum rows.
    """

    def __init__(self, reader: DataSourceReader, limit: int) -> None:
        self._reader = reader
        self._limit = limit

    def partitions(self) -> list[InputPartition]:
        """Return one partition, which contains all of the other reader."""
        return [AllPartitions(self._reader.partitions())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield batches up to the limit."""
        left = self._limit
        for each in cast(AllPartitions, partition).each:
            for batch in cast("Iterator[pa.RecordBatch]", self._reader.read(each)):
                yield batch[:left]
                left -= batch.num_rows
                if left <= 0:
                    return
