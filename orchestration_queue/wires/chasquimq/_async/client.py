"""The base of a queue's clients, whose connection opens when first used, and the client of its events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from orchestration_queue.errors import StateError, UsageError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.server import AsyncConnection, ServerUrl, parse_url
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.chasquimq.checks import check_count, check_cursor, duration_ms
from orchestration_queue.wires.chasquimq.entries import ChasquiEvent, entry_order, read_events
from orchestration_queue.wires.chasquimq.keys import LIBRARY, ChasquiKeys

__all__ = ["AsyncChasquiClient", "AsyncChasquiEvents"]

_BLOCK_S = 5.0


class AsyncChasquiClient:
    """A client of one queue.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.

    Raises:
        UsageError: The name is empty, or the URL is invalid.

    Attributes:
        name: The queue's name.
        keys: The queue's keys.
    """

    def __init__(self, name: str, *, url: str | ServerUrl | None = None) -> None:
        self.keys = ChasquiKeys(name)
        self.name = name
        # An invalid URL is refused immediately; that of the environment is read when the connection opens.
        self._url = url if url is None else parse_url(url)
        self._opened: AsyncConnection | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def _connection(self) -> AsyncConnection:
        async with self._opening:
            if self._is_closed:
                raise UsageError(f"The client of queue {self.name!r} is closed; create another.")
            if self._opened is None:
                self._opened = await AsyncConnection.open(self._url, libraries=(LIBRARY,))
            return self._opened

    async def _execute(self, call: Call, *, repeatable: bool = False) -> Reply:
        return await (await self._connection()).execute(call, repeatable=repeatable)

    async def _pipeline(self, calls: Sequence[Call], *, repeatable: bool = False) -> list[Reply]:
        return await (await self._connection()).pipeline(calls, repeatable=repeatable)

    async def aclose(self) -> None:
        """Close the connection."""
        async with self._opening:
            self._is_closed = True
            if self._opened is not None:
                await self._opened.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncChasquiEvents(AsyncChasquiClient):
    """The events of one queue, as they happen: an endless iterator. It connects when first used.

    The queue keeps about its last 100,000 events. To resume later, pass the last event's ``id`` as ``after``.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        after: Read events after this id; ``0`` reads all events, ``$`` those from now on.

    Raises:
        UsageError: A value is invalid.

    Attributes:
        name: The queue's name.
        keys: The queue's keys.
        cursor: The id of the last event read.
    """

    def __init__(self, name: str, *, url: str | ServerUrl | None = None, after: str = "$") -> None:
        super().__init__(name, url=url)
        self.cursor = check_cursor(after)
        self._ahead: deque[ChasquiEvent] = deque()

    async def start(self) -> str:
        """Find the newest event, so that no later one is missed, and return the cursor."""
        if self.cursor == "$":
            args = ("+", "-", "COUNT", 1)
            newest = await self._execute(Call("XREVRANGE", (self.keys.events,), args), repeatable=True)
            self.cursor = newest[0][0].decode() if newest else "0-0"
        return self.cursor

    async def read(self, timeout: Duration = 0, limit: int = 100) -> list[ChasquiEvent]:  # noqa: ASYNC109  both faces have it
        """Return the next events.

        Args:
            timeout: How long to wait for the first: a duration, or seconds.
            limit: At most this many.

        Raises:
            InvalidOptionError: A value is out of range; nothing was sent.
        """
        wait_ms, most = duration_ms(timeout, "timeout"), check_count(limit, "limit")
        ends_at = now_ms() + wait_ms
        while True:
            left_ms = max(
                0, min(ends_at - now_ms(), round(_BLOCK_S * 1000))
            )  # in parts, so that a silent server is noticed
            block = ("BLOCK", left_ms) if left_ms else ()
            args = ("COUNT", most, *block, "STREAMS", self.keys.events, await self.start())
            reply = await self._execute(Call("XREAD", args=args, near=self.keys.events), repeatable=True)
            events = read_events(reply)
            if events:
                self.cursor = events[-1].id
            if events or ends_at <= now_ms():
                return events

    async def check_cursor(self) -> None:
        """Check that the queue has kept the events after the cursor.

        Raises:
            StateError: It may have dropped some: its oldest event is newer.
        """
        reply = await self._execute(Call("XRANGE", (self.keys.events,), ("-", "+", "COUNT", 1)), repeatable=True)
        oldest = reply[0][0].decode() if reply else "0-0"
        if self.cursor not in ("$", "0", "0-0") and entry_order(self.cursor) < entry_order(oldest):
            raise StateError(
                f"Queue {self.name!r} may have dropped events after {self.cursor}: its oldest is {oldest}; "
                "read more often, or start over with `after='0'`."
            )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChasquiEvent:
        while not self._ahead:
            self._ahead.extend(await self.read(_BLOCK_S))
        return self._ahead.popleft()
