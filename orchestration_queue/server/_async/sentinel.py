"""Asking sentinels where the master is."""

from __future__ import annotations

from datetime import timedelta

from redis.exceptions import ConnectionError as NoConnectionError

from orchestration_queue.protocol.call import Call, text
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.server.driver_errors import LINK_ERRORS, reason
from orchestration_queue.server.url import ServerUrl

__all__ = ["find_master"]


async def find_master(url: ServerUrl, connect_timeout: timedelta) -> ServerUrl:
    """Ask the sentinels of a URL, one after the other, until one knows the master.

    Args:
        url: A URL of mode ``sentinel``.
        connect_timeout: How long one sentinel may take to connect.

    Raises:
        redis.ConnectionError: None of them knows.
    """
    ask = Call("SENTINEL", args=("GET-MASTER-ADDR-BY-NAME", url.master))
    why = ""
    for address in url.addresses:
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
