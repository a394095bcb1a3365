"""A proxy between a worker and its server that loses replies, holds them back, and cuts connections, as told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Saboteur"]

_CHUNK = 1 << 16


class Saboteur:
    """A proxy on a unix socket in front of a server's; a context manager. Harmless until it is told to do something.

    It need not know where a reply ends: those whom it serves send one request at a time on each connection, so the
    first bytes that come back after a request are of its reply, and say that the server has carried it out.

    Args:
        server: The server's socket.
        path: Its own.

    Attributes:
        lost: How many replies it lost.
        held: How many requests it holds.
        withheld: How many replies it has held back: that many requests have reached the server, and were carried out.
        passed: How often it passed on bytes from the server.
    """

    def __init__(self, server: Path, path: Path) -> None:
        self._server = server
        self._path = path
        self.lost = 0
        self.held = 0
        self.withheld = 0
        self.passed = 0
        self._rule: tuple[bytes, int] | None = None
        self._matches = 0
        self._held_request: bytes | None = None
        self._held_reply: bytes | None = None
        self._links: set[_Link] = set()
        self._listener: asyncio.Server | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="saboteur")

    @property
    def url(self) -> str:
        """The server's address for those that are sabotaged."""
        return f"unix://{self._path}"

    def lose_replies(self, word: str, *, every: int) -> None:
        """Cut the connection of every n-th request with this word, when it was carried out, before its reply."""
        self._rule = (word.encode(), every)

    def hold_requests(self, word: str) -> None:
        """From now on, never pass on a request with this word."""
        self._held_request = word.encode()

    def hold_replies(self, word: str = "") -> None:
        """From now on, hold back the replies to requests with this word, or all replies; the server does its part."""
        self._held_reply = word.encode()
        self._call(self._released.clear)

    def move(self, server: Path) -> None:
        """Lead new connections to another server, as a managed endpoint does; open ones stay where they are."""
        self._server = server

    def cut(self) -> None:
        """Drop all connections. Clients can connect again at once."""
        self._call(self._cut)

    def refuse(self) -> None:
        """Drop all connections, and let no client connect."""
        self._call(self._close)

    def admit(self) -> None:
        """Let everybody connect again."""
        self._run(self._listen())

    def relent(self) -> None:
        """Do no more harm, and let the replies go that were held. Requests that were held are lost."""
        self._rule = self._held_request = self._held_reply = None
        self._call(self._released.set)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60), "the saboteur did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._over.set)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the saboteur did not end"

    def _call(self, act: Callable[[], object]) -> None:
        async def call() -> None:
            act()

        self._run(call())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the thread that owns the connections."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over, self._released = asyncio.Event(), asyncio.Event()
        self._released.set()
        await self._listen()
        self._ready.set()
        await self._over.wait()
        self._close()
        self._released.set()
        while self._links:  # noqa: ASYNC110  each takes a moment to notice
            await asyncio.sleep(0.001)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_unix_server(self._accept, self._path)

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._path.unlink(missing_ok=True)
        self._cut()

    def _cut(self) -> None:
        for link in list(self._links):
            link.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_unix_connection(self._server)
        except OSError:
            writer.transport.abort()
            return
        link = _Link((reader, writer), server)
        self._links.add(link)
        try:
            with suppress(OSError):
                await asyncio.gather(self._pass_requests(link), self._pass_replies(link))
        finally:
            link.cut()
            self._links.discard(link)

    async def _pass_requests(self, link: _Link) -> None:
        while chunk := await link.client.read(_CHUNK):
            if self._held_request is not None and link.says(self._held_request, chunk):
                self.held += 1
                break
            if self._rule is not None and link.says(self._rule[0], chunk):
                self._matches += 1
                link.is_doomed = self._matches % self._rule[1] == 0
            if self._held_reply is not None and link.says(self._held_reply, chunk):
                link.is_held = True
            link.tail = chunk[-64:]
            link.to_server.write(chunk)
            await link.to_server.drain()
        if chunk:
            await link.client.read()  # what is held goes nowhere; its sender may disconnect
        link.cut()

    async def _pass_replies(self, link: _Link) -> None:
        while chunk := await link.server.read(_CHUNK):
            if link.is_held or self._held_reply == b"":
                self.withheld += 1
                await self._released.wait()
                link.is_held = False
            if link.is_doomed:
                self.lost += 1
                break
            link.to_client.write(chunk)
            self.passed += 1
            await link.to_client.drain()
        link.cut()


class _Link:
    """One connection of a client, and ours to the server on its behalf."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.client, self.to_client = client
        self.server, self.to_server = server
        self.tail = b""
        self.is_doomed = False
        self.is_held = False

    def says(self, word: bytes, chunk: bytes) -> bool:
        """Whether the word ends in this chunk; it may have begun in the one before."""
        return word in self.tail[1 - len(word) :] + chunk

    def cut(self) -> None:
        """Disconnect both."""
        self.to_client.transport.abort()
        self.to_server.transport.abort()
