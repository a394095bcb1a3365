"""Time limits of calls: how long to wait for a silent server.

The async face has one timer per server, however many calls there are; the sync face has its sockets' own timeouts.
"""

from __future__ import annotations

import asyncio
import time
from math import inf, isfinite
from types import TracebackType
from typing import Protocol

from redis.exceptions import TimeoutError as DriverTimeoutError

__all__ = ["AsyncConnectLimit", "AsyncReadLimit", "AsyncTimeLimits", "ConnectLimit", "ReadLimit", "TimeLimits"]

_LATE_S = 0.1
"""A timer that fires this much later was delayed by a busy event loop or process, which has not read replies either."""
_GRACE_S = 1.0
"""How much longer to wait then."""


class _AsyncLink(Protocol):
    """What limits need of a link: when it last heard from the server, and for how long it may hear nothing."""

    heard_at: float
    limit_s: float

    def abort(self) -> None: ...


class _Link(Protocol):
    def limit(self, seconds: float | None) -> None: ...

    def abort(self) -> None: ...


class AsyncTimeLimits:
    """Aborts the calls of one server's links that wait for a reply for too long.

    Attributes:
        busy: The links that wait for replies. The caller removes them.
    """

    def __init__(self) -> None:
        self.busy: set[_AsyncLink] = set()
        self._overdue: set[_AsyncLink] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = inf

    def begin(self, link: _AsyncLink, limit_s: float) -> None:
        """Limit the wait for the next reply on this link, and for each one after it."""
        link.heard_at, link.limit_s = time.monotonic(), limit_s
        self.busy.add(link)
        if link.heard_at + limit_s < self._fires_at:
            self._fire_at(link.heard_at + limit_s)

    def is_overdue(self, link: _AsyncLink, _: BaseException) -> bool:
        """Whether the call on this link was aborted because it waited for too long."""
        return link in self._overdue

    def forget(self, link: _AsyncLink) -> None:
        """Forget a link that is not used again."""
        self._overdue.discard(link)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._fires_at = None, inf

    def _fire_at(self, at: float) -> None:
        self.close()
        if isfinite(at):
            self._timer = asyncio.get_running_loop().call_later(at - time.monotonic(), self._check)
            self._fires_at = at

    def _check(self) -> None:
        now, planned = time.monotonic(), self._fires_at
        is_late = now - planned > _LATE_S
        due = {link: link.heard_at + link.limit_s for link in self.busy}
        for link, at in due.items():
            if at <= now and not is_late:
                self._overdue.add(link)
                link.abort()
        rest = [max(at, now + _GRACE_S) if is_late else at for at in due.values() if at > now or is_late]
        self._fire_at(min(rest, default=inf))


class TimeLimits:
    """The same for links of threads.

    Attributes:
        busy: The links that wait for replies. The caller removes them.
    """

    def __init__(self) -> None:
        self.busy: set[_Link] = set()

    def begin(self, link: _Link, limit_s: float) -> None:
        """Limit the wait for the next bytes on this link, and for all after them."""
        link.limit(limit_s if isfinite(limit_s) else None)
        self.busy.add(link)

    def is_overdue(self, _: _Link, error: BaseException) -> bool:
        """Whether the call ended with this error because it waited for too long."""
        return isinstance(error, (DriverTimeoutError, TimeoutError))

    def forget(self, link: _Link) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class AsyncConnectLimit:
    """A context in which a link connects and greets the server, with a limit in seconds."""

    def __init__(self, limits: AsyncTimeLimits, link: _AsyncLink, seconds: float) -> None:
        self._limits, self._link = limits, link
        limits.begin(link, seconds)

    async def __aenter__(self) -> None:
        """Do nothing; the time has begun."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limits.busy.discard(self._link)
        is_overdue = error is not None and self._limits.is_overdue(self._link, error)
        self._limits.forget(self._link)
        if is_overdue and isinstance(error, Exception):
            raise TimeoutError from error


class ConnectLimit:
    """The same for links of threads; each wait has the limit."""

    def __init__(self, _: TimeLimits, link: _Link, seconds: float) -> None:
        link.limit(seconds)

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *error: object) -> None:
        """Do nothing."""


class AsyncReadLimit:
    """A context in which a link waits for a message for a limited time; it can be read again after a TimeoutError."""

    def __init__(self, _: _AsyncLink, seconds: float) -> None:
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        """Begin."""
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, trace)


class ReadLimit:
    """The same for links of threads."""

    def __init__(self, link: _Link, seconds: float) -> None:
        link.limit(seconds)

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, DriverTimeoutError):
            raise TimeoutError from error
