"""Where a queue is, in a form that may travel in Spark's plans: the name of a variable instead of a secret."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.library import LIBRARIES, Library
from orchestration_queue.spark.datasource.source_options import SourceOptions

if TYPE_CHECKING:
    from orchestration_queue.server import Connection

__all__ = ["ADDRESS_OPTIONS", "QueueAddress", "StreamKeys", "own_keys"]

ADDRESS_OPTIONS = ("queue", "prefix", "url", "urlVariable")
_DEFAULT_VARIABLE = "OQ_URL"


class StreamKeys(Protocol):
    """What the keys of every kind of queue have."""

    @property
    def queue(self) -> str:
        """The queue's name."""

    @property
    def events(self) -> str:
        """The stream of events."""

    @property
    def stream(self) -> str:
        """The stream of ready jobs."""


K_co = TypeVar("K_co", bound=StreamKeys, covariant=True)


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
    """A URL that others may see. An embedded server's directory is the same for all processes of this machine."""
    from orchestration_queue.server.url import parse_url

    parsed = parse_url(url)
    if parsed.password or parsed.sentinel_password:
        raise InvalidOptionError(
            "The option url carries a password, which Spark writes into plans and logs; put the URL into an "
            "environment variable of the driver and the executors, and pass that variable's name as urlVariable."
        )
    return str(parsed) if parsed.kind == "embedded" or url is None else url
