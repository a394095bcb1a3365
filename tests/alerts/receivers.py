"""Receivers of alerts for tests: a webhook, one that never answers, and a mail server."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Hook", "Mailbox", "deaf_port", "hook", "mailbox"]


@dataclass
class Hook:
    """A web server that notes what is posted to it.

    Attributes:
        url: Its address.
        status: What it answers.
        headers: The headers of each request, by lower-case name.
        bodies: The body of each request, as received.
    """

    url: str
    status: int = 204
    more: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def posted(self) -> list[dict[str, Any]]:
        """The bodies as JSON."""
        return [json.loads(body) for body in self.bodies]

    @property
    def states(self) -> list[str]:
        """What each message said of its rule."""
        return [f"{each['state']} {each['rule']}" for each in self.posted]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        self.headers.append(headers)
        self.bodies.append(await reader.readexactly(int(headers["content-length"])))
        writer.write(f"HTTP/1.1 {self.status} X\r\n{self.more}Content-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def hook() -> AsyncIterator[Hook]:
    """A web server."""
    server = await asyncio.start_server(lambda r, w: found.serve(r, w), "127.0.0.1", 0)
    found = Hook(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/in?token=hidden")
    async with server:
        yield found


@asynccontextmanager
async def deaf_port() -> AsyncIterator[int]:
    """A port that accepts connections, and says nothing until the test ends."""
    writers: list[asyncio.StreamWriter] = []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


@dataclass
class Mailbox:
    """A mail server that notes what it gets.

    Attributes:
        port: Its port.
        commands: What clients said, without the mails.
        mails: The mails.
        refuses: What it says instead of accepting a mail; empty to accept it.
    """

    port: int = 0
    commands: list[str] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)
    refuses: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak SMTP with one client."""
        writer.write(b"220 test\r\n")
        while line := (await reader.readline()).decode().strip():
            self.commands.append(line)
            word = line.split()[0].upper()
            if word == "EHLO":
                writer.write(b"250-test\r\n250-8BITMIME\r\n250 AUTH PLAIN\r\n")
            elif word == "DATA" and not self.refuses:
                writer.write(b"354 now\r\n")
                self.mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
                writer.write(b"250 taken\r\n")
            else:
                answers = {"QUIT": "221 bye", "AUTH": "235 known", "DATA": self.refuses}
                writer.write(f"{answers.get(word, '250 fine')}\r\n".encode())
            await writer.drain()
            if word == "QUIT":
                break
        writer.close()


@asynccontextmanager
async def mailbox(tls: ssl.SSLContext | None = None) -> AsyncIterator[Mailbox]:
    """A mail server."""
    found = Mailbox()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found
