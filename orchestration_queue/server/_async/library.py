"""Makes sure that the server has our function libraries, and only ever replaces an older one of ours."""

from __future__ import annotations

from collections.abc import Sequence

from orchestration_queue.errors import ServerError, UnsupportedServerError
from orchestration_queue.protocol.call import Call, Reply, text
from orchestration_queue.protocol.library import (
    OLDEST_SERVER,
    Library,
    Step,
    is_ours,
    library_texts,
    next_step,
    server_version,
)
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.server.driver_errors import REFUSALS, error_code, lacks_function, missing_command, refused
from orchestration_queue.server.url import ServerUrl

__all__ = ["ensure_libraries"]

_TRIES = 4
"""Other processes may load at the same time; each of their loads can cost us one attempt."""


async def ensure_libraries(link: AsyncLink, url: ServerUrl, libraries: Sequence[Library]) -> None:
    """Load libraries that are missing or older than ours.

    Raises:
        UnsupportedServerError: The server is too old for functions, or lacks a command.
        ServerError: It refuses to report or load them.
        redis.RedisError: The connection broke; all of this can be repeated.
    """
    replies = await link.send([library.ask for library in libraries])
    for library, reply in zip(libraries, replies, strict=True):
        await _ensure(link, url, library, reply)


async def _ensure(link: AsyncLink, url: ServerUrl, library: Library, reply: Reply) -> None:
    load_refused = False
    for _ in range(_TRIES):
        theirs = await _version(link, url, library, reply)
        step = next_step(library.version, theirs, load_refused=load_refused)
        if step is Step.READ and not await _is_ours(link, library):
            return
        if step is Step.KEEP:
            return
        (loaded,) = await link.send((library.load(replace=step is not Step.LOAD),))
        load_refused = isinstance(loaded, REFUSALS) and "already exists" in str(loaded)
        if isinstance(loaded, REFUSALS) and not load_refused:
            raise refused(url, f"to load the function library {library.name!r}", loaded)
        if not load_refused:
            return
        (reply,) = await link.send((library.ask,))
    raise ServerError(
        f"The server at {url} refuses our function library {library.name!r}: {loaded}; FUNCTION LIST shows "
        "which library has its functions; delete that one if it isn't needed."
    )


async def _is_ours(link: AsyncLink, library: Library) -> bool:
    """Whether the text on the server is ours; False for a user who may not read it."""
    (found,) = await link.send((library.read,))
    return not isinstance(found, REFUSALS) and any(map(is_ours, library_texts(found).values()))


async def _version(link: AsyncLink, url: ServerUrl, library: Library, reply: Reply) -> str | None:
    """Read the reply to a query for a library's version; None means absent."""
    if not isinstance(reply, REFUSALS):
        return text(reply)
    if lacks_function(library.ask, reply):
        return None
    if error_code(reply) == "OOM":  # a full server runs no function that may write, and would accept no other library
        (found,) = await link.send((Call("FUNCTION", args=("LIST", "LIBRARYNAME", library.name)),))
        if found and not isinstance(found, REFUSALS):
            return library.version
    if missing_command(library.version_function, reply) is not None:
        (info,) = await link.send((Call("INFO", args=("server",)),))
        found, major = server_version("" if isinstance(info, REFUSALS) else text(info))
        if 0 < major < OLDEST_SERVER:
            raise UnsupportedServerError(
                f"The server at {url} is {found}, which has no server functions; "
                f"use Valkey, or Redis {OLDEST_SERVER} or newer."
            )
    raise refused(url, library.version_function, reply)
