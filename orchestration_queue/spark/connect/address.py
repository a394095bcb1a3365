"""Addresses of Spark Connect servers, ``sc://host:port/;name=value``, as PySpark reads them. Imports no PySpark."""

from __future__ import annotations

from urllib.parse import urlsplit

from orchestration_queue.errors import InvalidOptionError

__all__ = ["DEFAULT_USER", "checked", "place"]

DEFAULT_USER = "orchestration-queue"
"""Whose sessions ours are: the same in all processes, or a retry could not find those of another attempt."""

_DEFAULT_PORT = 15002


def checked(url: str) -> str:
    """Return the address, if PySpark can connect to it.

    Raises:
        InvalidOptionError: It cannot be used, or would make PySpark hang.
    """
    if not isinstance(url, str):
        raise InvalidOptionError(f"`url` must be text, got {url!r}; write it like 'sc://host:15002'.")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "sc" or not parts.hostname or parts.path.partition(";")[0] not in ("", "/"):
        raise InvalidOptionError(
            f"{_shown(url)!r} is no address of a Spark Connect server; write it like 'sc://host:15002'."
        )
    given = parameters(url)
    if "session_id" in given:
        raise InvalidOptionError(
            f"The address {_shown(url)!r} names a session, and each job has its own; leave session_id out."
        )
    # PySpark turns TLS on for a token, except for this one name of the host; a server without TLS never answers then.
    if "token" in given and parts.hostname in ("127.0.0.1", "::1") and given.get("use_ssl") != "true":
        raise InvalidOptionError(
            f"The address {_shown(url)!r} has a token, with which PySpark reaches a server of this machine without "
            "TLS only as 'localhost'; write that instead, or add use_ssl=true."
        )
    return url


def parameters(url: str) -> dict[str, str]:
    """Return what follows the host: ``use_ssl``, ``token``, ``user_id``."""
    words = urlsplit(url).path.partition(";")[2].split(";")
    return {name: value for name, _, value in (word.partition("=") for word in words if word)}


def place(url: str) -> str:
    """Host and port: what of an address may be shown and stored."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or _DEFAULT_PORT}"


def _shown(url: str) -> str:
    return url.partition(";")[0]
