"""Makes sure that the server holds our function libraries, and never an older one than it held before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestration_queue.errors import ServerError, UnsupportedServerError
from orchestration_queue.protocol.call import Call, Reply, text
from orchestration_queue.protocol.library import OLDEST_SERVER, Library, Step, next_step, server_version
from orchestration_queue.server.faults import REFUSALS, lacks_function, refused
from orchestration_queue.server.url import ServerUrl

__all__ = ["ensure_libraries"]

_TRIES = 4
"""Others may load while we do; each of their loads can cost us one try."""


class AsyncExchange(Protocol):
    """Sends calls in one trip and returns raw replies, refusals among them."""

    async def __call__(self, calls: Sequence[Call], *, repeatable: bool = ...) -> list[Reply]: ...


async def ensure_libraries(exchange: AsyncExchange, url: ServerUrl, libraries: Sequence[Library]) -> None:
    """Load what is missing or older than ours.

    Raises:
        UnsupportedServerError: The server is too old for functions.
        ServerError: It does not let us ask or load.
    """
    calls = [library.ask for library in libraries]
    replies = await exchange(calls, repeatable=True) if calls else ()
    for library, reply in zip(libraries, replies, strict=True):
        await _ensure(exchange, url, library, reply)


async def _ensure(exchange: AsyncExchange, url: ServerUrl, library: Library, reply: Reply) -> None:
    load_refused = False
    for _ in range(_TRIES):
        theirs = await _version(exchange, url, library, reply)
        step = next_step(library.version, theirs, load_refused=load_refused)
        if step is Step.KEEP:
            return
        # A load that the server finds already done is repeatable, and so is a replacement by the same text.
        (loaded,) = await exchange((library.load(replace=step is Step.REPLACE),), repeatable=True)
        load_refused = isinstance(loaded, REFUSALS) and "already exists" in str(loaded)
        if isinstance(loaded, REFUSALS) and not load_refused:
            raise refused(url, f"to load the function library {library.name!r}", loaded)
        if not load_refused:
            return
        (reply,) = await exchange((library.ask,), repeatable=True)
    raise ServerError(
        f"The server at {url} does not take our function library {library.name!r}: {loaded}; "
        "look with FUNCTION LIST which library has its functions, and delete that if nothing needs it."
    )


async def _version(exchange: AsyncExchange, url: ServerUrl, library: Library, reply: Reply) -> str | None:
    """Read the answer to the question for a library's version; None is absent."""
    if not isinstance(reply, REFUSALS):
        return text(reply)
    if lacks_function(library.ask, reply):
        return None
    if "unknown command" in str(reply).lower():
        (info,) = await exchange((Call("INFO", args=("server",)),), repeatable=True)
        found, major = server_version("" if isinstance(info, REFUSALS) else text(info))
        if major < OLDEST_SERVER:
            raise UnsupportedServerError(
                f"The server at {url} is {found}, which has no server functions; "
                f"use Valkey, or Redis {OLDEST_SERVER} or newer."
            )
    raise refused(url, library.version_function, reply)
