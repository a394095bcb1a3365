"""One socket to the server: bytes out, raw replies back."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol, cast

import redis.asyncio as driver
from redis.exceptions import RedisError

from orchestration_queue.protocol.call import Call, Reply, pack
from orchestration_queue.server.driver_errors import LINK_ERRORS, REFUSALS
from orchestration_queue.server.url import ServerUrl

__all__ = ["AsyncLink"]

_PING = b"*1\r\n$4\r\nPING\r\n"

# The kernel notices a broken network: a dead peer fails a read after about half a minute, however long it may block.
_KEEPALIVE = {
    getattr(socket, name): value
    for name, value in {
        "TCP_KEEPIDLE": 15,
        "TCP_KEEPINTVL": 5,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": 30_000,
    }.items()
    if hasattr(socket, name)
}


class _Driver(Protocol):
    """The part of redis-py's connection that we use. It does the TLS and login handshakes, and parses with hiredis."""

    async def connect(self) -> None: ...

    async def send_packed_command(self, command: Iterable[bytes], check_health: bool = ...) -> None: ...

    async def read_response(self, *, disconnect_on_error: bool = ...) -> Any: ...

    async def disconnect(self) -> None: ...


class AsyncLink:
    """One socket to the server.

    Args:
        url: The server, of kind ``tcp``, ``tls`` or ``unix``.
        timeout: Maximum duration of connecting.

    Attributes:
        used_at: When it was last returned to its pool, in seconds of the monotonic clock.
        generation: Which of its node's generations of sockets it belongs to.
        heard_at: When the current call began, or last received a reply, in seconds of the monotonic clock.
        limit_s: For how long the current call may hear nothing.
    """

    used_at = 0.0
    generation = 0
    heard_at = limit_s = 0.0

    def __init__(self, url: ServerUrl, timeout: timedelta) -> None:
        options: dict[str, Any] = {
            "db": url.db,
            "username": url.username,
            "password": url.password,
            "protocol": 2,
            # Limits are our own: redis-py 8 would otherwise end every read after 5 s, and with it every blocking call.
            "socket_timeout": None,
            "socket_connect_timeout": timeout.total_seconds(),
        }
        drivers: Any = driver  # redis-py's types are incomplete, and differ from version to version
        if url.kind == "unix":
            made = drivers.UnixDomainSocketConnection(path=str(url.path), **options)
        else:
            options |= {"host": url.host, "port": url.port}
            options |= {"socket_keepalive": True, "socket_keepalive_options": _KEEPALIVE}
            made = drivers.SSLConnection(**options, **_tls(url)) if url.kind == "tls" else drivers.Connection(**options)
        self._made = made
        self._driver = cast(_Driver, made)
        self._parse: Callable[[], Any] | None = None
        self._incomplete: object = None
        self._input = select.poll()
        # redis-py 8 renamed it.
        self._has_input = getattr(made, "can_read", None) or made.can_read_destructive

    async def connect(self) -> None:
        """Connect, log in, and make sure that the server is ready. On an error, the caller must close the link.

        Raises:
            redis.RedisError: The server is not ready.
            OSError: There is no server.
        """
        await self._driver.connect()
        # A server that is still loading its data accepts the login, but refuses this.
        await self._driver.send_packed_command((_PING,), check_health=False)
        await self._driver.read_response()
        self._parse = getattr(getattr(getattr(self._made, "_parser", None), "_reader", None), "gets", None)
        self._incomplete = self._parse() if self._parse else None
        self._input.register(self._socket(), select.POLLIN)

    async def is_fresh(self) -> bool:
        """Whether the socket is still open, with no stray bytes in it."""
        try:
            # The driver does not see what arrived while the event loop was busy, such as the end of the connection.
            return not await self._has_input() and not self._input.poll(0)
        except LINK_ERRORS:
            return False

    def limit(self, seconds: float | None) -> None:
        """Limit each wait of the socket from now on, in the sync face; None is no limit."""
        self._made.socket_timeout = seconds
        if (end := self._socket()) is not None:
            end.settimeout(seconds)

    def abort(self) -> None:
        """Abort the call that waits for a reply, by closing the socket."""
        writer = getattr(self._made, "_writer", None)
        if writer is not None:
            writer.transport.abort()
        elif (end := self._socket()) is not None:
            with suppress(OSError):  # the server was faster
                end.shutdown(socket.SHUT_RDWR)

    def _socket(self) -> Any:
        writer = getattr(self._made, "_writer", None)
        return getattr(self._made, "_sock", None) if writer is None else writer.get_extra_info("socket")

    async def exchange(self, packed: bytes, count: int) -> list[Reply]:
        """Send commands and read a reply to each; an error reply is in the list as the driver's exception.

        Raises:
            redis.RedisError: The connection broke; whether the server executed anything is unknown.
            OSError: Likewise.
        """
        await self._driver.send_packed_command((packed,), check_health=False)
        return await self.read(count)

    async def write(self, packed: bytes) -> None:
        """Send commands without reading their replies; raise what :meth:`exchange` does."""
        self.heard_at = time.monotonic()  # the caller may have taken long to make them
        await self._driver.send_packed_command((packed,), check_health=False)

    async def read(self, count: int) -> list[Reply]:
        """Read this many replies, as :meth:`exchange` does."""
        replies: list[Reply] = []
        parse = self._parse
        while len(replies) < count:
            try:
                # The driver would disconnect at a refusal such as LOADING, and the replies after it would be lost.
                replies.append(await self._driver.read_response(disconnect_on_error=False))
            except REFUSALS as refusal:
                replies.append(refusal)
            if len(replies) < count:
                self.heard_at = time.monotonic()
            # Replies that have arrived already: asking the driver for each takes ten times as long.
            while parse is not None and len(replies) < count and (reply := parse()) is not self._incomplete:
                if isinstance(reply, RedisError) and not isinstance(reply, REFUSALS):
                    raise reply  # as the driver does: this error is the connection's
                replies.append(reply)
        return replies

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        """Send calls, as :meth:`exchange` does."""
        return await self.exchange(pack(calls), len(calls)) if calls else []

    async def close(self) -> None:
        """Close the socket in any state."""
        try:
            await self._driver.disconnect()
        except LINK_ERRORS:
            return


def _tls(url: ServerUrl) -> dict[str, Any]:
    given = dict(url.tls)
    # Older redis-py checks no host names unless told to.
    return {"ssl_check_hostname": given.get("ssl_cert_reqs") != "none", **given}
