"""The server's URL, as one value. Secrets in it never appear in a message, a log or a repr."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from orchestration_queue.errors import UsageError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.slots import Address

__all__ = ["DEFAULT_DIRECTORY", "DEFAULT_URL", "URL_VARIABLE", "ServerUrl", "Timeouts", "parse_url"]

URL_VARIABLE = "OQ_URL"
"""The environment variable for the server's URL."""
DEFAULT_URL = "embedded://"
"""The URL if none is given."""
DEFAULT_DIRECTORY = ".oq"
"""The embedded server's data directory, in the working directory."""

DEFAULT_TIMEOUT = timedelta(seconds=30)
"""The maximum wait for a reply, if the URL names none."""
DEFAULT_CONNECT_TIMEOUT = timedelta(seconds=5)
"""The maximum duration of connecting, if the URL names none."""

Kind = Literal["embedded", "tcp", "tls", "unix"]
Mode = Literal["single", "cluster", "sentinel"]
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
_LIMITS = ("timeout", "connect_timeout")
_LOGIN = ("db", "username", "password", *_LIMITS)
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_OPTIONS: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {"embedded": ("db", "grace", *_LIMITS), "tcp": _LOGIN, "tls": (*_LOGIN, *_TLS), "unix": _LOGIN}
)
_SENTINEL_LOGIN = ("sentinel_username", "sentinel_password")
_PORTS: Mapping[Mode, int] = MappingProxyType({"single": 6379, "cluster": 6379, "sentinel": 26379})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for a server.

    Attributes:
        timeout: Maximum wait for a reply to a call; a blocking read may take its own time longer.
        connect_timeout: Maximum duration of connecting, with TLS, login, and the libraries.
    """

    timeout: timedelta
    connect_timeout: timedelta


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A parsed connection URL. ``str()`` masks the password.

    Attributes:
        kind: The kind of connection.
        host: Host name or address, for ``tcp`` and ``tls``.
        port: TCP port, for ``tcp`` and ``tls``.
        path: The socket for ``unix``, the data directory for ``embedded``; absolute.
        db: Number of the database.
        username: ACL user; None is the default user.
        password: Password of the user.
        tls: Settings of ``tls`` with redis-py's names (``ssl_ca_certs`` and so on).
        grace: How long an embedded server outlives its last user.
        mode: Whether the server is a single one, a cluster, or managed by sentinels.
        addresses: Nodes of a ``cluster``, or the sentinels of ``sentinel``; host and port are not used then.
        master: The name by which sentinels know the server.
        sentinel_username: ACL user for the sentinels.
        sentinel_password: Password for the sentinels.
        timeout: Maximum wait for a reply.
        connect_timeout: Maximum duration of connecting.
    """

    kind: Kind
    host: str = ""
    port: int = 6379
    path: Path = Path()
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: tuple[tuple[str, str | bool], ...] = ()
    grace: Duration = timedelta(seconds=1)
    mode: Mode = "single"
    addresses: tuple[Address, ...] = ()
    master: str = ""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    timeout: Duration = DEFAULT_TIMEOUT
    connect_timeout: Duration = DEFAULT_CONNECT_TIMEOUT

    def at(self, address: Address) -> ServerUrl:
        """Return the URL of the single server at an address, with this URL's credentials and settings."""
        return replace(self, mode="single", host=address[0], port=address[1], addresses=(), master="")

    def sentinel(self, address: Address) -> ServerUrl:
        """One of the sentinels."""
        return replace(self.at(address), db=0, username=self.sentinel_username, password=self.sentinel_password)

    def __str__(self) -> str:
        scheme = {"tcp": "redis", "tls": "rediss"}.get(self.kind, self.kind)
        secret = ":***@" if self.password else "@"
        login = f"{self.username or ''}{secret}" if self.username or self.password else ""
        if self.mode == "single" and self.kind in ("tcp", "tls"):
            return f"{scheme}://{login}{_address_text((self.host, self.port))}/{self.db}"
        place = str(self.path)
        if self.mode != "single":
            scheme = f"{scheme}+{self.mode}"
            place = ",".join(map(_address_text, self.addresses)) + (f"/{self.master}" if self.master else "")
        return f"{scheme}://{login}{place}" + (f"?db={self.db}" if self.db else "")

    def __repr__(self) -> str:
        return f"ServerUrl({str(self)!r})"


def _address_text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_url(url: str | ServerUrl | None = None) -> ServerUrl:
    """Parse a server URL.

    Args:
        url: One of::

                embedded://                    a server of our own, its data in .oq of the working directory
                embedded://dir  embedded:///abs/dir[?grace=seconds]
                redis://[user[:password]@]host[:port][/db]       or valkey://
                rediss://...[?ssl_ca_certs=file&ssl_certfile=file&ssl_keyfile=file
                             &ssl_cert_reqs=required|none&ssl_check_hostname=true|false]  or valkeys://
                unix://[user:password@]/path/to/socket[?db=0]
                redis+cluster://host[:port][,host[:port]...]     any of the cluster's nodes
                redis+sentinel://host[:port][,host[:port]...]/name[?db=0]        the sentinels, and the master's name

            Each may have ``timeout=30`` and ``connect_timeout=5``: maximum seconds to wait for a reply, and to connect.
            ``username``, ``password`` and ``db`` may also be query options; user and password are the server's, and
            sentinels have ``sentinel_username`` and ``sentinel_password``. With TLS it is ``rediss+cluster`` and
            ``rediss+sentinel``. None is the environment variable ``OQ_URL``, or else ``embedded://``.

    Raises:
        UsageError: The URL is invalid. Its password is not in the message.
    """
    if isinstance(url, ServerUrl):
        return url
    if url is not None and not isinstance(url, str):
        raise UsageError(f"`url` must be text such as redis://host:6379/0, got {url!r}.")
    text = (os.environ.get(URL_VARIABLE) or DEFAULT_URL) if url is None else url
    try:
        return _parse(text.strip())
    except ValueError as problem:
        source = f" from {URL_VARIABLE}" if url is None else ""
        raise UsageError(
            f"The server URL {_hide_secrets(text)!r}{source} cannot be read, because {problem}; "
            "write redis://host:6379/0, rediss://..., unix:///path/to/socket, redis+cluster://host,host, "
            "redis+sentinel://host,host/name or embedded://directory."
        ) from None


def _parse(text: str) -> ServerUrl:
    authority, parts, kind, mode = _split(text)
    login, _, authority = authority.rpartition("@")
    has_hosts = kind in ("tcp", "tls")
    addresses = tuple(_address(address, _PORTS[mode]) for address in authority.split(",")) if has_hosts else ()
    options = _options(parts.query, kind, mode)
    timeout, connect_timeout = (
        _read(name, options[name], _positive_seconds) if name in options else default
        for name, default in (("timeout", DEFAULT_TIMEOUT), ("connect_timeout", DEFAULT_CONNECT_TIMEOUT))
    )
    in_login = login.partition(":")
    common = ServerUrl(
        kind,
        username=options.get("username") or unquote(in_login[0]) or None,
        password=options.get("password") or unquote(in_login[2]) or None,
        timeout=timeout,
        connect_timeout=connect_timeout,
    )
    if has_hosts:
        return _at_hosts(replace(common, mode=mode), addresses, parts.path.strip("/"), options)
    # A relative path's first part is where other URLs have their host.
    return _at_path(common, unquote(authority + parts.path), options)


def _at_hosts(common: ServerUrl, addresses: tuple[Address, ...], in_path: str, options: Mapping[str, str]) -> ServerUrl:
    mode = common.mode
    url = replace(
        common,
        db=_read("the database", options.get("db") or (in_path if mode == "single" else "") or "0", _database),
        tls=tuple((name, _tls_value(name, value)) for name, value in options.items() if name in _TLS),
    )
    if mode == "single":
        return url.at(_only(addresses))
    if (mode == "sentinel") is not bool(in_path):
        raise ValueError("it names no master" if mode == "sentinel" else "a cluster has no numbered databases")
    return replace(
        url,
        addresses=addresses,
        master=unquote(in_path),
        sentinel_username=options.get("sentinel_username") or None,
        sentinel_password=options.get("sentinel_password") or None,
    )


def _at_path(common: ServerUrl, path: str, options: Mapping[str, str]) -> ServerUrl:
    if not path and common.kind == "unix":
        raise ValueError("it names no socket")
    if "\0" in path:
        raise ValueError("a path cannot hold a zero byte")
    return replace(
        common,
        path=_real_path(path or DEFAULT_DIRECTORY),
        db=_read("the database", options.get("db", "0"), _database),
        username=common.username if common.kind == "unix" else None,
        password=common.password if common.kind == "unix" else None,
        grace=_read("grace", options.get("grace", "1"), _seconds),
    )


def _real_path(path: str) -> Path:
    """Return a path as an absolute one without symbolic links."""
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError:
        raise ValueError(
            f"{path!r} is relative to the working directory, which no longer exists; change to one that does"
        ) from None


def _split(text: str) -> tuple[str, SplitResult, Kind, Mode]:
    # Since Python 3.14, urlsplit takes several IPv6 addresses for a malformed one.
    scheme, mark, rest = text.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    try:
        parts = urlsplit(scheme + mark + rest.removeprefix(authority))
    except ValueError:
        raise ValueError("it does not start with a scheme we know") from None
    if parts.fragment:
        raise ValueError("it has a '#' (in a password, write '#' as %23, '/' as %2F and '?' as %3F)")
    scheme, _, mode = parts.scheme.partition("+")
    kind = _KINDS.get(scheme)
    if kind is None or not text[len(parts.scheme) :].startswith("://"):
        raise ValueError("it does not start with a scheme we know")
    match mode:
        case "":
            return authority, parts, kind, "single"
        case "cluster" | "sentinel" if kind in ("tcp", "tls"):
            return authority, parts, kind, mode
    raise ValueError("it does not start with a scheme we know")


def _address(text: str, default_port: int) -> Address:
    try:
        parts = urlsplit(f"//{text}")
    except ValueError:
        raise ValueError("its host is malformed") from None
    try:
        port = default_port if parts.port is None else parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("its port is not a number from 1 to 65535 (in a password, write '/' as %2F and '?' as %3F)")
    return parts.hostname or "localhost", port


def _only(addresses: tuple[Address, ...]) -> Address:
    if len(addresses) > 1:
        raise ValueError("it names several hosts, as only redis+cluster:// and redis+sentinel:// do")
    return addresses[0]


def _options(query: str, kind: Kind, mode: Mode) -> dict[str, str]:
    known = [name for name in _OPTIONS[kind] if (name, mode) != ("db", "cluster")]
    if mode == "sentinel":
        known += _SENTINEL_LOGIN
    pairs = parse_qsl(query, keep_blank_values=True)
    for name, _ in pairs:
        if name not in known:
            raise ValueError(f"{name[:40]!r} is not an option it can have ({', '.join(known)} are)")
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


def _positive_seconds(text: str) -> timedelta:
    value = _seconds(text)
    if not value:
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


def _hide_secrets(text: str) -> str:
    """Hide possible secrets in an invalid URL."""
    hidden = re.sub(r":.*@", "://***@", text, flags=re.DOTALL)
    return re.sub(r"(?i)(pass\w*=)[^&]*", r"\1***", hidden)
