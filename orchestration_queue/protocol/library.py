"""The function libraries of this package, and when to load them. Newer ones, and glide-mq's own, are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib import resources

from orchestration_queue.protocol.call import Call, Reply, text
from orchestration_queue.protocol.functions import REVISIONS

__all__ = [
    "LIBRARIES",
    "OLDEST_SERVER",
    "Library",
    "Step",
    "command_in_line",
    "is_missing_function",
    "is_ours",
    "library_texts",
    "next_step",
    "server_version",
]

OLDEST_SERVER = 7
"""The first major version of Redis (and of Valkey) that has functions."""

_OURS = "python tools/bundle_lua.py"
"""What the second line of each text of ours has always said."""

_MISSING = ("function not found", "function not loaded", "no matching script", "noscript")


class Step(StrEnum):
    """What to do about a library on a server."""

    KEEP = "keep"
    """It exists, and is not older than ours."""
    LOAD = "load"
    """It is missing: load ours, unless another client just did."""
    REPLACE = "replace"
    """The existing one is older than ours."""
    READ = "read"
    """The existing one doesn't name its revision: replace it if its text is one of ours."""


@dataclass(frozen=True)
class Library:
    """One function library.

    Attributes:
        name: Its name on the server.
        version: Our version: numbers with dots between them.
        version_function: The function that returns it.
        source: The library's text; None is the one this package ships under the library's name.
        version_arguments: Arguments of the function.
    """

    name: str
    version: str
    version_function: str
    source: str | None = field(default=None, repr=False)
    version_arguments: tuple[str, ...] = ()

    @cached_property
    def text(self) -> str:
        """The library as the server loads it."""
        if self.source is not None:
            return self.source
        return resources.files("orchestration_queue.protocol").joinpath(f"lua/{self.name}.lua").read_text("utf-8")

    @property
    def ask(self) -> Call:
        """Ask the server which version it holds."""
        return Call(self.version_function, args=self.version_arguments, is_function=True)

    @property
    def read(self) -> Call:
        """Read the text that the server holds; see :func:`library_texts`."""
        return Call("FUNCTION", args=("LIST", "LIBRARYNAME", self.name, "WITHCODE"))

    def load(self, *, replace: bool) -> Call:
        """Load ours."""
        return Call("FUNCTION", args=("LOAD", *(("REPLACE",) if replace else ()), self.text))


LIBRARIES: tuple[Library, ...] = (
    Library("glidemq", f"93.{REVISIONS['glidemq']}", "glidemq_version", version_arguments=("revision",)),
    Library("orchestration_queue_1", str(REVISIONS["orchestration_queue_1"]), "oq1_version"),
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
    if len(their_numbers) < len(our_numbers):
        return Step.READ
    return Step.REPLACE if their_numbers < our_numbers else Step.KEEP


def is_ours(source: str) -> bool:
    """Whether a library's text is one of ours, of any release."""
    return any(_OURS in line for line in source.split("\n", 2)[1:2])


def library_texts(reply: Reply) -> dict[str, str]:
    """Read the text of each library from the reply to ``FUNCTION LIST WITHCODE``."""
    libraries = [dict(zip(map(text, each[::2]), each[1::2], strict=True)) for each in reply]
    return {text(each["library_name"]): text(each["library_code"]) for each in libraries}


def is_missing_function(error_text: str) -> bool:
    """Whether the server failed a call because it does not hold the function."""
    lowered = error_text.lower()
    return any(phrase in lowered for phrase in _MISSING)


def command_in_line(function: str, line: int) -> str:
    """Return the command that a line of the library with this function calls; empty if that can't be told."""
    for file in resources.files("orchestration_queue.protocol").joinpath("lua").iterdir():
        source = file.read_text("utf-8")
        if f'"{function}"' in source or f"'{function}'" in source:
            found = re.search(r"""_?redis[._]p?call\(["'](\w+)""", "".join(source.splitlines()[line - 1 : line]))
            return found.group(1).upper() if found else ""
    return ""


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
