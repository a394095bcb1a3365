"""A server of Redis 8.6 for the original's client: forwards to Valkey and supplies the three commands that it lacks.

Where OQ_TEST_REDIS86 names a real one (``unix:///path``), the tests run on that, and commands are forwarded untouched.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_SHIM = b"""
local real = redis
local function call(name, key, ...)
  local words = { ... }
  if name == "XADD" and words[1] == "IDMP" then
    return real.call(name, key, unpack(words, 4))
  end
  if name ~= "XACKDEL" then
    return real.call(name, key, ...)
  end
  local replies = {}
  for index = 4, #words do
    local taken = real.call("XACK", key, words[1], words[index]) == 1
    replies[index - 3] = taken and real.call("XDEL", key, words[index]) or -1
  end
  return replies
end
local redis = setmetatable({ call = call }, { __index = real })
"""
_NEEDS_SHIM = re.compile(rb"XACKDEL|IDMP")
IS_REAL = "OQ_TEST_REDIS86" in os.environ
_scripts: dict[bytes, bytes] = {}
"""Rewritten scripts, by the hash that the client knows them by."""


@contextmanager
def redis86(socket: str) -> Iterator[str]:
    """Serve on a free port, in a thread since the original's constructors block; the URL to connect to."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="redis86")
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(_listen(socket), loop).result(60)
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _listen(socket: str) -> asyncio.Server:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await _serve(socket, reader, writer)
        writer.close()

    return await asyncio.start_server(accept, "127.0.0.1", 0, limit=2**24)


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=10)


async def _serve(socket: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    upstream, to_server = await asyncio.open_unix_connection(socket, limit=2**24)
    try:
        while True:
            command = await _read(reader)
            assert isinstance(command, list)
            words, widen = (command, False) if IS_REAL else _translate(command)
            to_server.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            writer.write(_widened(await _read(upstream)) if widen else await _raw(upstream))
            await writer.drain()
    finally:
        to_server.close()


def _translate(command: list[bytes]) -> tuple[list[bytes], bool]:
    """What the server understands in place of a command, and whether entries of its reply need two more elements."""
    upper = [word.upper() for word in command]
    if upper[0] == b"XADD" and b"IDMP" in upper[:4]:
        place = upper.index(b"IDMP")
        return command[:place] + command[place + 3 :], False
    if upper[0] == b"XREADGROUP" and b"CLAIM" in upper:
        place = upper.index(b"CLAIM")
        return command[:place] + command[place + 2 :], True
    if upper[0] == b"XACKDEL":
        return [b"EVAL", _SHIM + b"return call('XACKDEL', KEYS[1], unpack(ARGV))", b"1", *command[1:]], False
    if upper[:2] == [b"SCRIPT", b"LOAD"]:
        _scripts[hashlib.sha1(command[2], usedforsecurity=False).hexdigest().encode()] = _rewritten(command[2])
    if upper[0] == b"EVALSHA" and command[1] in _scripts:
        return [b"EVAL", _scripts[command[1]], *command[2:]], False
    if upper[0] == b"EVAL":
        return [command[0], _rewritten(command[1]), *command[2:]], False
    return command, False


def _rewritten(script: bytes) -> bytes:
    """A script that needs no command of Redis 8.6."""
    if not _NEEDS_SHIM.search(script):
        return script
    head, body = script.split(b"\n", 1) if script.startswith(b"#!") else (b"", script)
    return head + _SHIM + body


async def _line(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readuntil(b"\r\n"))[:-2]


async def _raw(reader: asyncio.StreamReader) -> bytes:
    """One reply as it is."""
    line = await _line(reader)
    kind, rest = line[:1], line[1:]
    if kind == b"$" and rest != b"-1":
        return line + b"\r\n" + await reader.readexactly(int(rest) + 2)
    if kind == b"*" and rest != b"-1":
        return line + b"\r\n" + b"".join([await _raw(reader) for _ in range(int(rest))])
    return line + b"\r\n"


async def _read(reader: asyncio.StreamReader) -> object:
    """One value: bytes, a list, or for all else its line."""
    line = await _line(reader)
    kind, rest = line[:1], line[1:]
    if kind in b"$*" and rest == b"-1":
        return None
    if kind == b"$":
        return (await reader.readexactly(int(rest) + 2))[:-2]
    if kind == b"*":
        return [await _read(reader) for _ in range(int(rest))]
    return line


def _widened(value: object) -> bytes:
    """A read's reply whose entries say, as those of Redis 8.4, that they are new."""
    if not isinstance(value, list):
        return b"*-1\r\n" if value is None else b"%s\r\n" % value
    streams = []
    for name, entries in value:
        wide = b"".join(b"*4\r\n" + _packed(entry[0]) + _packed(entry[1]) + b":0\r\n:0\r\n" for entry in entries)
        streams.append(b"*2\r\n" + _packed(name) + b"*%d\r\n" % len(entries) + wide)
    return b"*%d\r\n" % len(streams) + b"".join(streams)


def _packed(value: object) -> bytes:
    if isinstance(value, list):
        return b"*%d\r\n" % len(value) + b"".join(map(_packed, value))
    assert isinstance(value, bytes)
    return b"$%d\r\n%s\r\n" % (len(value), value)
