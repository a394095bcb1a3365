"""Addresses of Spark Connect servers, ``sc://host:port/;name=value``, as PySpark reads them. Imports no PySpark."""

from __future__ import annotations

from urllib.parse import urlsplit

from orchestration_queue.errors import InvalidOptionError

__all__ = ["DEFAULT_USER", "check_address", "place"]

DEFAULT_USER = "orchestration-queue"
"""The user of our sessions: the same in all processes, or a retry could not find the session of an earlier attempt."""

_DEFAULT_PORT = 15002


def check_address(url: str) -> str:
    """Return the address, if PySpark can connect to it.

    Raises:
        InvalidOptionError: It is invalid, or would make PySpark hang.
    """
    if not isinstance(url, str):
        raise InvalidOptionError(f"`url` must be a string, got {url!r}; pass 'sc://host:15002'.")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "sc" or not parts.hostname or parts.path.partition(";")[0] not in ("", "/"):
        raise InvalidOptionError(
            f"`url` must be the address of a Spark Connect server, got {_shown(url)!r}; pass 'sc://host:15002'."
        )
    given = parameters(url)
    if "session_id" in given:
        raise InvalidOptionError(
            f"`url` must not name a session, because each job has its own, got {_shown(url)!r}; remove session_id."
        )
    # With a token, PySpark uses TLS unless the host is 'localhost', and then waits forever for a server without TLS.
    if "token" in given and parts.hostname in ("127.0.0.1", "::1") and given.get("use_ssl") != "true":
        raise InvalidOptionError(
            f"`url` {_shown(url)!r} has a token, for which PySpark uses TLS unless the host is 'localhost'; "
            "replace the host by 'localhost', or add use_ssl=true."
        )
    return url


def parameters(url: str) -> dict[str, str]:
    """Return the parameters of an address: ``use_ssl``, ``token``, ``user_id``."""
    words = urlsplit(url).path.partition(";")[2].split(";")
    return {name: value for name, _, value in (word.partition("=") for word in words if word)}


def place(url: str) -> str:
    """Return host and port: the part of an address that may be shown and stored."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or _DEFAULT_PORT}"


def _shown(url: str) -> str:
    return url.partition(";")[0]
