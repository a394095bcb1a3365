"""The function libraries of this package, and when to load them. A newer one on the server is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib import resources

from orchestration_queue.protocol.call import Call

__all__ = ["LIBRARIES", "OLDEST_SERVER", "Library", "Step", "is_missing_function", "next_step", "server_version"]

OLDEST_SERVER = 7
"""The first major version of Redis (and of Valkey) that has functions."""

_MISSING = ("function not found", "function not loaded", "no matching script", "noscript")


class Step(StrEnum):
    """What to do about a library on a server."""

    KEEP = "keep"
    """It exists, and is not older than ours."""
    LOAD = "load"
    """It is missing: load ours, unless another client just did."""
    REPLACE = "replace"
    """The existing one is older than ours."""


@dataclass(frozen=True)
class Library:
    """One function library.

    Attributes:
        name: Its name on the server.
        version: Our version.
        version_function: The function that returns it.
        source: The library's text; None is the one this package ships under the library's name.
    """

    name: str
    version: str
    version_function: str
    source: str | None = field(default=None, repr=False)

    @cached_property
    def text(self) -> str:
        """The library as the server loads it."""
        if self.source is not None:
            return self.source
        return resources.files("orchestration_queue.protocol").joinpath(f"lua/{self.name}.lua").read_text("utf-8")

    @property
    def ask(self) -> Call:
        """Ask the server which version it holds."""
        return Call(self.version_function, is_function=True)

    def load(self, *, replace: bool) -> Call:
        """Load ours."""
        return Call("FUNCTION", args=("LOAD", *(("REPLACE",) if replace else ()), self.text))


LIBRARIES: tuple[Library, ...] = (
    Library("glidemq", "93", "glidemq_version"),
    Library("orchestration_queue_1", "27", "oq1_version"),
)
"""The libraries that every connection ensures."""


def next_step(ours: str, theirs: str | None, *, load_refused: bool = False) -> Step:
    """Decide what to do about a library.

    Args:
        ours: Our version.
        theirs: The version on the server; None if it has no such function.
        load_refused: The server reported that a library with this name exists.
    """
    if theirs is None:
        # A library with this name that can't report its version is older than any that can.
        return Step.REPLACE if load_refused else Step.LOAD
    our_numbers, their_numbers = _numbers(ours), _numbers(theirs)
    if our_numbers is None or their_numbers is None:
        return Step.KEEP  # not a version we can compare: leave it alone
    return Step.REPLACE if their_numbers < our_numbers else Step.KEEP


def is_missing_function(error_text: str) -> bool:
    """Whether the server failed a call because it does not hold the function."""
    lowered = error_text.lower()
    return any(phrase in lowered for phrase in _MISSING)


def server_version(info: str) -> tuple[str, int]:
    """Read product with version, and the major version, from the ``server`` section of INFO.

    Valkey also says which Redis it is compatible with; its own version counts.
    """
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    product, version = next(
        (
            (product, fields[key])
            for product, key in (("Valkey", "valkey_version"), ("Redis", "redis_version"))
            if key in fields
        ),
        ("server", "of unknown version"),
    )
    major = version.split(".")[0]
    return f"{product} {version}", int(major) if major.isdecimal() else 0


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.strip().split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else None
