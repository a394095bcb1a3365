"""Messages of channels, on a socket of their own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from orchestration_queue.errors import TransportError
from orchestration_queue.protocol.call import Call, Reply, pack
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.server.driver_errors import LINK_ERRORS, REFUSALS, reason, refused
from orchestration_queue.server.time_limits import AsyncReadLimit, AsyncTimeLimits
from orchestration_queue.server.url import ServerUrl

__all__ = ["AsyncSubscription"]

_PING = Call("PING")
# In RESP2, a subscribed connection replies to PING with a list.
_PONGS = (b"PONG", [b"pong", b""])


class AsyncSubscription:
    """A subscription to channels. The caller closes it, also after an error.

    A message is its kind, its channel, and its payload.

    Args:
        link: A socket for this only.
        url: Its server.
        timeout_s: How long to wait for a reply, and how long to wait for a message before asking for one.
    """

    def __init__(self, link: AsyncLink, url: ServerUrl, timeout_s: float) -> None:
        self._link = link
        self._url = url
        self._timeout_s = timeout_s
        self._time_limits = AsyncTimeLimits()
        self._ahead: deque[Reply] = deque()

    async def start(self, channels: Sequence[str]) -> None:
        """Subscribe, so that no later message is missed.

        Raises:
            TransportError: The connection broke, or the server is silent.
            ServerError: The server refused it.
        """
        await self._exchange(Call("SUBSCRIBE", args=tuple(channels)), _PING)

    async def next(self) -> Reply:
        """Return the next message, however long that takes; raise what :meth:`start` does."""
        while not self._ahead:
            try:
                async with AsyncReadLimit(self._link, self._timeout_s):
                    return (await self._link.read(1))[0]
            except TimeoutError:
                await self._exchange(_PING)
            except LINK_ERRORS as error:
                raise self._break_error(error) from error
        return self._ahead.popleft()

    async def read(self, limit: int) -> list[Reply]:
        """Return messages that were published until now, at most this many; raise what :meth:`start` does."""
        if len(self._ahead) < limit:
            await self._exchange(_PING)
        return [self._ahead.popleft() for _ in range(min(limit, len(self._ahead)))]

    async def _exchange(self, *calls: Call) -> None:
        """Send calls, of which the last is a ping, and keep the messages that were published before its reply."""
        link, limits = self._link, self._time_limits
        try:
            limits.begin(link, self._timeout_s)
            await link.write(pack(calls))
            while (reply := (await link.read(1))[0]) not in _PONGS:
                link.heard_at = time.monotonic()
                if isinstance(reply, REFUSALS):
                    raise refused(self._url, calls[0].name, reply)
                if reply[0] == b"message":
                    self._ahead.append(reply)
        except LINK_ERRORS as error:
            raise self._break_error(TimeoutError() if limits.is_overdue(link, error) else error) from error
        finally:
            limits.busy.discard(link)

    def _break_error(self, error: BaseException) -> TransportError:
        why = f"the server at {self._url} did not reply within {self._timeout_s:g} s"
        why = why if isinstance(error, TimeoutError) else reason(error)
        return TransportError(f"The subscription broke ({why}); read again to resubscribe.", maybe_applied=False)

    async def aclose(self) -> None:
        """Close the socket."""
        self._time_limits.close()
        self._link.abort()
        await self._link.close()
