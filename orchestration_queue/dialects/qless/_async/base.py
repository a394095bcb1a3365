"""A connection that opens when first used."""

from __future__ import annotations

import asyncio
import os
import socket
from types import TracebackType
from typing import Self

from orchestration_queue.dialects.qless.commands import LIBRARY, command, text_word, translate_error
from orchestration_queue.dialects.qless.records import QlessJob
from orchestration_queue.errors import ServerError, UsageError
from orchestration_queue.protocol.call import Call, Reply, Word
from orchestration_queue.server import AsyncConnection, ServerUrl, parse_url

__all__ = ["AsyncQlessConnection"]


class AsyncQlessConnection:
    """Sends commands in a worker's name.

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        worker: The name under which jobs are taken; default: the host's name and the process id.

    Raises:
        UsageError: The URL is invalid, or the name is empty.

    Attributes:
        worker: The name under which jobs are taken.
    """

    def __init__(self, *, url: str | ServerUrl | None = None, worker: str | None = None) -> None:
        self._url = url if url is None else parse_url(url)
        self.worker = f"{socket.gethostname()}-{os.getpid()}" if worker is None else text_word(worker, "worker")
        self._opened: AsyncConnection | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def _connection(self) -> AsyncConnection:
        async with self._opening:
            if self._is_closed:
                raise UsageError("This qless client is closed; create another.")
            if self._opened is None:
                self._opened = await AsyncConnection.open(self._url, libraries=(LIBRARY,))
            return self._opened

    async def command(self, name: str, *words: Word) -> Reply:
        """Send a command and return its raw reply.

        Args:
            name: The command, such as ``queue.forget``.
            words: Its arguments after the time.

        Raises:
            ServerError: The server refused it.
        """
        strange = next(
            (word for word in words if isinstance(word, bool) or not isinstance(word, str | int | float)), ""
        )
        if strange != "":
            raise UsageError(f"A command's words must be text or numbers, got {strange!r}.")
        return await self._execute(command(text_word(name, "name"), *words))

    async def _execute(self, call: Call) -> Reply:
        return await (await self._connection()).execute(call)

    async def _about(self, job: QlessJob | str, name: str, *words: Word) -> Reply:
        """Send a command about a job; translate a refusal into the specific error."""
        try:
            return await self.command(name, *words)
        except ServerError as error:
            if isinstance(job, QlessJob):
                raise translate_error(error, job.jid, job.queue) from None
            raise translate_error(error, job) from None

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
