"""The base of a queue's clients: its keys, and a connection that opens when first used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from orchestration_queue.dialects.chasquimq.keys import LIBRARY, ChasquiKeys
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.server import AsyncConnection, ServerUrl, parse_url

__all__ = ["AsyncChasquiClient"]


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
