"""Asking sentinels where the master is, and noticing when they say that it has changed."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from redis.exceptions import ConnectionError as NoConnectionError

from orchestration_queue.protocol.call import Call, text
from orchestration_queue.protocol.slots import Address
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.server.driver_errors import LINK_ERRORS, reason
from orchestration_queue.server.url import ServerUrl

__all__ = ["AsyncSentinelWatch", "find_master"]

_EVENTS = ("+switch-master", "+promoted-slave", "+failover-end")
_RETRY_S = 10.0
"""How long a sentinel that cannot be reached is left alone."""
_CONNECT_TIMEOUT = timedelta(seconds=1)


class AsyncSentinelWatch:
    """Subscriptions to the sentinels of a URL, read before each call, without waiting.

    A planned failover leaves the old primary up for seconds before it is demoted: what is written there meanwhile is
    lost, though the sentinels already know better.

    Args:
        url: A URL of mode ``sentinel``.

    Attributes:
        informed: The sentinel that announced the last change.
    """

    def __init__(self, url: ServerUrl) -> None:
        self._url = url
        self._links: dict[Address, AsyncLink] = {}
        self._retry_at: dict[Address, float] = {}
        self._lock = asyncio.Lock()
        self.informed: Address | None = None

    async def has_news(self) -> bool:
        """Return whether the master may have changed since the last call."""
        found = False
        async with self._lock:
            for address in self._url.addresses:
                link = self._links.get(address)
                if link is not None and await link.is_fresh():
                    continue
                if link is not None:
                    del self._links[address]
                    await link.close()
                    self.informed, found = address, True
                if time.monotonic() >= self._retry_at.get(address, 0.0):
                    found |= await self._subscribe(address)
        return found

    async def _subscribe(self, address: Address) -> bool:
        link = AsyncLink(self._url.sentinel(address), _CONNECT_TIMEOUT)
        try:
            await link.connect()
            await link.send([Call("SUBSCRIBE", args=(event,)) for event in _EVENTS])
        except LINK_ERRORS:
            await link.close()
            self._retry_at[address] = time.monotonic() + _RETRY_S
            return False
        except BaseException:
            await link.close()
            raise
        self._links[address] = link
        return True

    async def aclose(self) -> None:
        """Close every subscription."""
        async with self._lock:
            while self._links:
                _, link = self._links.popitem()
                await link.close()


async def find_master(url: ServerUrl, connect_timeout: timedelta, first: Address | None = None) -> ServerUrl:
    """Ask the sentinels of a URL, one after the other, until one knows the master.

    Args:
        url: A URL of mode ``sentinel``.
        connect_timeout: How long one sentinel may take to connect.
        first: The sentinel to ask before the others: the others hear of a failover from it.

    Raises:
        redis.ConnectionError: None of them knows.
    """
    ask = Call("SENTINEL", args=("GET-MASTER-ADDR-BY-NAME", url.master))
    why = ""
    for address in sorted(url.addresses, key=lambda address: address != first):
        link = AsyncLink(url.sentinel(address), connect_timeout)
        try:
            await link.connect()
            (reply,) = await link.send((ask,))
        except LINK_ERRORS as error:
            why = reason(error)
            continue
        finally:
            await link.close()
        if isinstance(reply, list):
            host, port = reply
            return url.at((text(host), int(port)))
        why = f"the sentinel at port {address[1]} of {address[0]} knows no master {url.master!r}"
    raise NoConnectionError(why)
