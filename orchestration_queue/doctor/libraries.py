"""Which function libraries a server has, whose they are, and what connecting would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Call, text
from orchestration_queue.protocol.functions import REVISIONS
from orchestration_queue.protocol.library import (
    LIBRARIES,
    Library,
    Step,
    is_missing_function,
    is_ours,
    library_texts,
    next_step,
)
from orchestration_queue.server import Connection
from orchestration_queue.wires import WIRES

__all__ = ["BUNDLED", "LoadedLibrary", "Owner", "read_libraries"]

BUNDLED = (
    *LIBRARIES,
    *(Library(wire.name, str(REVISIONS[wire.name]), f"{wire.name}_version") for wire in WIRES),
)
"""Every library of this package. Only clients of other wires, which may need more packages, load theirs."""


class Owner(StrEnum):
    """Whose text a library is."""

    OURS = "orchestration_queue"
    """Some release of this package."""
    UPSTREAM = "glide-mq"
    """glide-mq's own."""
    UNKNOWN = "unknown"
    """Another program's, or the user may not read it."""


@dataclass(frozen=True, slots=True)
class LoadedLibrary:
    """A library of this package, and what a server has under its name.

    Attributes:
        library: This release's.
        version: The server's version; None if it is missing.
        owner: Whose text the server has; None if it is missing.
        step: What connecting does about it.
    """

    library: Library
    version: str | None
    owner: Owner | None
    step: Step


def read_libraries(connection: Connection) -> list[LoadedLibrary]:
    """Read the libraries that every connection loads, and those of other wires if the server has them.

    Raises:
        ServerError: The server doesn't answer their versions.
    """
    calls = [*(library.ask for library in BUNDLED), Call("FUNCTION", args=("LIST", "WITHCODE"))]
    *replies, found = connection.pipeline(calls, repeatable=True)
    texts = {} if isinstance(found, ServerError) else library_texts(found)
    loaded = []
    for library, reply in zip(BUNDLED, replies, strict=True):
        if isinstance(reply, ServerError) and not is_missing_function(str(reply)):
            raise reply
        version = None if isinstance(reply, ServerError) else text(reply)
        if version is not None or library in LIBRARIES:
            loaded.append(_judge(library, version, texts))
    return loaded


def _judge(library: Library, version: str | None, texts: Mapping[str, str]) -> LoadedLibrary:
    step = next_step(library.version, version)
    if version is None:
        return LoadedLibrary(library, None, None, step)
    is_unnumbered = step is Step.READ
    ours = is_ours(texts[library.name]) if library.name in texts else not is_unnumbered
    if is_unnumbered:
        step = Step.REPLACE if ours else Step.KEEP
    is_wire = library is LIBRARIES[0] and library.name in texts
    owner = Owner.OURS if ours else Owner.UPSTREAM if is_wire else Owner.UNKNOWN
    return LoadedLibrary(library, version, owner, step)
