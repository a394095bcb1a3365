"""Where the server is, as one value. Secrets in it never show in a message, a log or a repr."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from orchestration_queue.errors import UsageError

__all__ = ["DEFAULT_DIRECTORY", "DEFAULT_URL", "URL_VARIABLE", "ServerUrl", "parse_url"]

URL_VARIABLE = "OQ_URL"
"""The environment variable that says where the server is."""
DEFAULT_URL = "embedded://"
"""What is used when nothing says where the server is."""
DEFAULT_DIRECTORY = ".oq"
"""The embedded server's data directory, in the working directory."""

Kind = Literal["embedded", "tcp", "tls", "unix"]
T = TypeVar("T")

_KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "embedded": "embedded",
        "redis": "tcp",
        "valkey": "tcp",
        "rediss": "tls",
        "valkeys": "tls",
        "unix": "unix",
    }
)
_LOGIN = ("db", "username", "password")
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_OPTIONS: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {"embedded": ("db", "grace"), "tcp": _LOGIN, "tls": (*_LOGIN, *_TLS), "unix": _LOGIN}
)


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A parsed connection URL. ``str()`` of it is fit to be shown: the password is masked.

    Attributes:
        kind: How to get there.
        host: Host name or address, for ``tcp`` and ``tls``.
        port: TCP port, for ``tcp`` and ``tls``.
        path: The socket for ``unix``, the data directory for ``embedded``; absolute.
        db: Number of the database.
        username: ACL user; None is the default user.
        password: What to authenticate with.
        tls: Settings of ``tls`` under redis-py's names (``ssl_ca_certs`` and so on).
        grace: How long an embedded server outlives its last user.
    """

    kind: Kind
    host: str = ""
    port: int = 6379
    path: Path = Path()
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: tuple[tuple[str, str | bool], ...] = ()
    grace: timedelta = timedelta(seconds=1)

    def __str__(self) -> str:
        scheme = {"tcp": "redis", "tls": "rediss"}.get(self.kind, self.kind)
        secret = ":***@" if self.password else "@"
        login = f"{self.username or ''}{secret}" if self.username or self.password else ""
        if self.kind in ("tcp", "tls"):
            host = f"[{self.host}]" if ":" in self.host else self.host
            return f"{scheme}://{login}{host}:{self.port}/{self.db}"
        return f"{scheme}://{login}{self.path}" + (f"?db={self.db}" if self.db else "")

    def __repr__(self) -> str:
        return f"ServerUrl({str(self)!r})"


def parse_url(url: str | ServerUrl | None = None) -> ServerUrl:
    """Say where the server is.

    Args:
        url: One of::

                embedded://                    a server of our own, its data in .oq of the working directory
                embedded://dir  embedded:///abs/dir[?grace=seconds]
                redis://[user[:password]@]host[:port][/db]       or valkey://
                rediss://...[?ssl_ca_certs=file&ssl_certfile=file&ssl_keyfile=file
                             &ssl_cert_reqs=required|none&ssl_check_hostname=true|false]  or valkeys://
                unix://[user:password@]/path/to/socket[?db=0]

            ``username``, ``password`` and ``db`` may also be query options. None is what the environment
            variable ``OQ_URL`` says, else ``embedded://``.

    Raises:
        UsageError: The URL cannot be read. Its password is not in the message.
    """
    if isinstance(url, ServerUrl):
        return url
    text = (os.environ.get(URL_VARIABLE) if url is None else url) or DEFAULT_URL
    try:
        return _parse(text.strip())
    except ValueError as problem:
        source = f" from {URL_VARIABLE}" if url is None else ""
        raise UsageError(
            f"The server URL {_masked(text)!r}{source} cannot be read, because {problem}; "
            "write redis://host:6379/0, rediss://..., unix:///path/to/socket or embedded://directory."
        ) from None


def _parse(text: str) -> ServerUrl:
    parts = _split(text)
    kind = _KINDS.get(parts.scheme)
    if kind is None or not text[len(parts.scheme) :].startswith("://"):
        raise ValueError("it does not start with a scheme we know")
    options = _options(parts.query, kind)
    username = options.get("username") or unquote(parts.username or "") or None
    password = options.get("password") or unquote(parts.password or "") or None
    if kind in ("tcp", "tls"):
        in_path = parts.path.strip("/")
        return ServerUrl(
            kind,
            host=parts.hostname or "localhost",
            port=parts.port or 6379,
            db=_read("the database", options.get("db") or in_path or "0", _database),
            username=username,
            password=password,
            tls=tuple((name, _tls_value(name, value)) for name, value in options.items() if name in _TLS),
        )
    # A relative path's first part stands where other URLs have their host.
    path = unquote(parts.netloc.rpartition("@")[2] + parts.path)
    if not path and kind == "unix":
        raise ValueError("it names no socket")
    if "\0" in path:
        raise ValueError("a path cannot hold a zero byte")
    return ServerUrl(
        kind,
        path=Path(os.path.realpath(path or DEFAULT_DIRECTORY)),
        db=_read("the database", options.get("db", "0"), _database),
        username=username if kind == "unix" else None,
        password=password if kind == "unix" else None,
        grace=_read("grace", options.get("grace", "1"), _seconds),
    )


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError("its host is malformed") from None
    if parts.fragment:
        raise ValueError("it has a '#' (in a password, write '#' as %23, '/' as %2F and '?' as %3F)")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 and parts.scheme not in ("embedded", "unix"):
        raise ValueError("its port is not a number from 1 to 65535 (in a password, write '/' as %2F and '?' as %3F)")
    return parts


def _options(query: str, kind: Kind) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    for name, _ in pairs:
        if name not in _OPTIONS[kind]:
            raise ValueError(f"{name[:40]!r} is not an option it can have ({', '.join(_OPTIONS[kind])} are)")
    return dict(pairs)


def _read(what: str, text: str, convert: Callable[[str], T]) -> T:
    try:
        return convert(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{what} is not a number it can be") from None


def _database(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError
    return int(text)


def _seconds(text: str) -> timedelta:
    value = timedelta(seconds=float(text))
    if value < timedelta(0) or value > timedelta(days=1):
        raise ValueError
    return value


def _tls_value(name: str, value: str) -> str | bool:
    if name == "ssl_check_hostname":
        if value.lower() not in ("true", "false"):
            raise ValueError("ssl_check_hostname is neither true nor false")
        return value.lower() == "true"
    if name == "ssl_cert_reqs" and value not in ("required", "optional", "none"):
        raise ValueError("ssl_cert_reqs is not one of required, optional, none")
    return value


def _masked(text: str) -> str:
    """Hide what may be a secret in a URL that could not be read."""
    hidden = re.sub(r":.*@", "://***@", text, flags=re.DOTALL)
    return re.sub(r"(?i)(pass\w*=)[^&]*", r"\1***", hidden)
