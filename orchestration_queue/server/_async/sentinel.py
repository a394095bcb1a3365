"""What sentinels report: where the primary is, and whether a failover is in progress."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

from redis.exceptions import ConnectionError as NoConnectionError

from orchestration_queue.protocol.call import Call, Reply, pack, text
from orchestration_queue.protocol.slots import Address
from orchestration_queue.server._async.link import AsyncLink
from orchestration_queue.server.driver_errors import LINK_ERRORS, reason
from orchestration_queue.server.time_limits import AsyncConnectLimit, AsyncTimeLimits
from orchestration_queue.server.url import ServerUrl

__all__ = ["AsyncSentinelWatch"]

# A planned failover begins with +try-failover; +promoted-slave comes before +switch-master, by which time writes to
# the old primary are lost.
_SUBSCRIBE = Call("PSUBSCRIBE", args=("*failover*", "+switch-master", "+promoted-*"))
_RETRY_S = 10.0
"""How long an unreachable sentinel is left alone, unless no other is known."""
_CONNECT_TIMEOUT = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _View:
    """One sentinel's view, and the subscription on which it announces the next change.

    Attributes:
        link: The subscription.
        primary: The primary's address; once a replica is promoted, the replica's.
        epoch: If two sentinels disagree, the one with the greater epoch is right.
        is_failing_over: A failover has begun and no replica is promoted yet. Writes to the old primary may never reach
            the new one.
    """

    link: AsyncLink
    primary: Address
    epoch: int
    is_failing_over: bool


class AsyncSentinelWatch:
    """Subscriptions to the sentinels of a URL, read before each call, without waiting.

    A planned failover leaves the old primary up for seconds: what is written there after the promotion is lost. The
    sentinel that leads it announces its start at least one tenth of a second before the promotion, so calls that wait
    from then on are not lost. After each announcement the sentinel is asked again, as a new client would.

    Args:
        url: A URL of mode ``sentinel``.
    """

    def __init__(self, url: ServerUrl) -> None:
        self._url = url
        self._views: dict[Address, _View] = {}
        self._retry_at: dict[Address, float] = {}
        self._lock = asyncio.Lock()
        self._time_limits = AsyncTimeLimits()
        self._known: Address | None = None
        self._why = "no sentinel was asked"

    async def has_news(self) -> bool:
        """Return whether open links must not be used: the primary has changed since the last call, or is about to."""
        # One at a time: concurrent calls would each subscribe.
        async with self._lock:
            await self._refresh()
            if not self._views:
                return False
            before, self._known = self._known, self._newest().primary
            return before != self._known or self._is_failing_over

    async def find_primary(self) -> ServerUrl:
        """Return the primary's address.

        Raises:
            redis.ConnectionError: No sentinel knows, or a failover is in progress.
        """
        async with self._lock:
            await self._refresh()
            if not self._views:
                self._retry_at.clear()
                await self._refresh()
            if not self._views:
                raise NoConnectionError(self._why)
            if self._is_failing_over:
                raise NoConnectionError("its sentinels are replacing the primary by a replica")
            primary = self._newest().primary
            if self._known is None:
                self._known = primary
            return self._url.at(primary)

    @property
    def _is_failing_over(self) -> bool:
        return any(view.is_failing_over for view in self._views.values())

    def _newest(self) -> _View:
        return max(self._views.values(), key=lambda view: view.epoch)

    async def _refresh(self) -> None:
        """Ask each sentinel that has announced something, or is not subscribed to."""
        for address in self._url.addresses:
            view = self._views.get(address)
            if view is not None:
                # Unread data on a subscription is an announcement.
                if await view.link.is_fresh():
                    continue
                del self._views[address]
                await view.link.close()
            if time.monotonic() >= self._retry_at.get(address, 0.0):
                await self._subscribe(address)

    async def _subscribe(self, address: Address) -> None:
        """Ask a sentinel and subscribe to it in one exchange, so that no change is missed between the two."""
        link = AsyncLink(self._url.sentinel(address), _CONNECT_TIMEOUT)
        name = self._url.master
        ask = [Call("SENTINEL", args=(what, name)) for what in ("GET-MASTER-ADDR-BY-NAME", "MASTER")]
        try:
            async with AsyncConnectLimit(self._time_limits, link, _CONNECT_TIMEOUT.total_seconds()):
                await link.connect()
                # PSUBSCRIBE replies once per pattern.
                where, details, *_ = await link.exchange(pack([*ask, _SUBSCRIBE]), 2 + len(_SUBSCRIBE.args))
        except LINK_ERRORS as error:
            self._why = reason(error)
        except BaseException:
            await link.close()
            raise
        else:
            if isinstance(where, list):
                self._views[address] = _read_view(link, where, details)
                return
            self._why = f"the sentinel at port {address[1]} of {address[0]} knows no master {name!r}"
        await link.close()
        self._retry_at[address] = time.monotonic() + _RETRY_S

    async def forget(self) -> None:
        """Close every subscription; the sentinels are asked again when needed."""
        self._time_limits.close()
        async with self._lock:
            while self._views:
                _, view = self._views.popitem()
                await view.link.close()


def _read_view(link: AsyncLink, where: list[Reply], details: Reply) -> _View:
    """Read the replies of a sentinel; its details may be refused to this user."""
    primary = text(where[0]), int(where[1])
    words = [text(word) for word in details] if isinstance(details, list) else []
    known = dict(zip(words[::2], words[1::2], strict=True))
    old = known.get("ip"), known.get("port")
    return _View(
        link,
        primary,
        int(known.get("config-epoch", "0")),
        # The flag outlasts the promotion, but GET-MASTER-ADDR-BY-NAME names the replica from then on.
        "failover_in_progress" in known.get("flags", "") and old == (primary[0], str(primary[1])),
    )
