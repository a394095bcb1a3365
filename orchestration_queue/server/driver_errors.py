"""Translate redis-py's errors to ours: whose fault it is, what happened, what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ExecAbortError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from orchestration_queue.errors import ServerError, TransportError, UnsupportedServerError, UsageError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.library import OLDEST_SERVER, command_in_line, is_missing_function
from orchestration_queue.server.refusals import REFUSALS_OF_SERVERS
from orchestration_queue.server.url import ServerUrl

__all__ = [
    "LINK_ERRORS",
    "REFUSALS",
    "closed",
    "crowded",
    "error_code",
    "interrupted",
    "lacks_function",
    "loop_error",
    "missing_command",
    "overdue",
    "reason",
    "refused",
    "server_code",
    "unreachable",
]

REFUSALS = (ResponseError, AuthenticationError, AuthorizationError, BusyLoadingError)
"""Refusals by the server. Catch them before :data:`LINK_ERRORS`, which contains these."""

LINK_ERRORS = (RedisError, OSError)
"""The connection can no longer be used."""

_CODES: dict[type[BaseException], str] = {
    AskError: "ASK",
    AuthenticationError: "WRONGPASS",
    BusyLoadingError: "LOADING",
    ClusterDownError: "CLUSTERDOWN",
    ExecAbortError: "EXECABORT",
    MasterDownError: "MASTERDOWN",
    MovedError: "MOVED",
    NoPermissionError: "NOPERM",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    TryAgainError: "TRYAGAIN",
}
"""Codes for which the driver has classes."""


def unreachable(url: ServerUrl, waited_s: float, reason: str) -> TransportError:
    """Return the error for a server that could not be connected to, so nothing was sent."""
    check = (
        "see supervisor.log in that directory"
        if url.kind == "embedded"
        else "check that the server runs there and that the URL (url= or OQ_URL) is right"
    )
    return TransportError(
        f"Cannot reach the server at {url} after trying for {waited_s:.1f} s ({reason}); {check}.", maybe_applied=False
    )


def closed(url: ServerUrl) -> TransportError:
    """Return the error for a connection closed by this process."""
    return TransportError(f"The connection to {url} was closed by this process; open another.", maybe_applied=False)


def loop_error(error: RuntimeError) -> RuntimeError | UsageError:
    """Return the error for a client that is used in another event loop than the one it connected in."""
    if not re.search("Event loop is closed|different (event )?loop", str(error)):
        return error
    return UsageError(
        f"This client is connected in another event loop ({reason(error)}), as of an earlier asyncio.run(); "
        "create a client in each loop, as by `async with AsyncQueue(...)`."
    )


def interrupted(url: ServerUrl, calls: Sequence[Call], error: BaseException) -> TransportError:
    """Return the error for a connection that broke between sending and the reply."""
    return TransportError(
        f"The connection to the server at {url} broke during {_names(calls)} ({reason(error)}), so the call "
        "may or may not have been applied; read the state before repeating it.",
        maybe_applied=True,
    )


def overdue(url: ServerUrl, calls: Sequence[Call], limit_s: float) -> TransportError:
    """Return the error for a server that has not replied in time."""
    return TransportError(
        f"The server at {url} did not reply to {_names(calls)} within {limit_s:g} s, so the call may or may not have "
        "been applied; read the state before repeating it, or raise `timeout` if the server is only slow.",
        maybe_applied=True,
    )


def crowded(url: ServerUrl, calls: Sequence[Call], limit_s: float) -> TransportError:
    """Return the error for a call that was not sent, because calls before it were not replied to."""
    return TransportError(
        f"All connections to the server at {url} waited for replies for {limit_s:g} s, so {_names(calls) or 'a call'} "
        "was not sent; check the server, or make fewer calls at a time.",
        maybe_applied=False,
    )


def refused(url: ServerUrl, what: str, error: BaseException) -> ServerError:
    """Return the error for a refusal by the server."""
    if (command := missing_command(what, error)) is not None:
        return UnsupportedServerError(
            f"The server at {url} refused {what}, because it lacks the command {command or 'that this calls'}; use "
            f"Valkey, or Redis {OLDEST_SERVER} or newer, where that command is neither renamed nor disabled.",
            command=command,
        )
    code = error_code(error)
    known = REFUSALS_OF_SERVERS.get(code)
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        advice = "check the user and password in the URL"
    elif isinstance(error, AskError):
        advice = "it is part of a cluster, so write redis+cluster:// instead of redis:// in the URL"
    elif known is not None:
        advice = known.advice
    else:
        return ServerError(f"The server at {url} refused {what}: {error}", code=code)
    return ServerError(f"The server at {url} refused {what} ({reason(error)}); {advice}.", code=code)


def missing_command(what: str, error: BaseException) -> str | None:
    """Return the command that a server does not have; None if that's not why it refused a call.

    Args:
        what: The call. Of a command that is called in a function, servers name only the line.
        error: The refusal.

    Returns:
        The command; empty if it can't be told.
    """
    said = str(error)
    if re.match(r"unknown\b.*\bcommand called from", said, re.IGNORECASE):
        line = re.search(r"on @user_function:(\d+)", said)
        return command_in_line(what, int(line.group(1))) if line else ""
    if found := re.match(r"unknown subcommand\b.*\btry (\w+) help", said, re.IGNORECASE):
        return found.group(1).upper()
    if found := re.match(r"unknown command:? *[`'\"]?([\w.|]+)", said, re.IGNORECASE):
        return found.group(1).upper()
    return None


def error_code(error: BaseException) -> str:
    """Return the code with which a refusal began; empty if it was the general one, which the driver removes."""
    found = re.match(r"[A-Z][A-Z0-9_]{2,}(?= )", str(error))
    return found.group() if found else _CODES.get(type(error), "")


def server_code(error: BaseException) -> str:
    """Return as :func:`error_code` does, for an aborted transaction the code of what aborted it."""
    code = error_code(error)
    if code == "EXECABORT" and (why := re.search(r"because of: ([A-Z]+) ", str(error))):
        return why.group(1)
    return code


def lacks_function(call: Call, reply: Reply) -> bool:
    """Whether a call failed only because the server has no such function, so that nothing was applied."""
    return call.is_function and isinstance(reply, ResponseError) and is_missing_function(str(reply))


def reason(error: BaseException) -> str:
    """Return the driver's message, for use within a sentence."""
    silent = "no reply in time" if isinstance(error, TimeoutError) else type(error).__name__
    return (str(error) or silent).rstrip(".")


def _names(calls: Sequence[Call]) -> str:
    names = list(dict.fromkeys(call.name for call in calls))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
