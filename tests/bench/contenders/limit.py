"""No queue: the commands that the wire demands of a job, packed by hiredis, without a check, a lease or a record."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import hiredis
import redis.asyncio

from tests.bench.contenders import QUEUE, Handler, Settle

__all__ = ["ByHand", "Measured"]

_PREFIX = f"limit:{{{QUEUE}}}:"
_STREAM, _EVENTS, _COMPLETED, _METRICS = (f"{_PREFIX}{key}" for key in ("stream", "events", "completed", "metrics"))
_GROUP = "workers"
_A_CALL = 1000
_NOW = b"1795699345913"
_BYTES = 1 << 16
_Command = tuple[Any, ...]


def _job(job_id: object) -> str:
    return f"{_PREFIX}job:{job_id}"


def _added(job_id: object, data: Any) -> list[_Command]:
    """Return the three writes of an added job."""
    fields = ("id", job_id, "name", "noop", "data", json.dumps(data), "opts", "{}", "timestamp", _NOW)
    zeros = ("attemptsMade", 0, "delay", 0, "priority", 0, "maxAttempts", 0, "state", "waiting")
    return [
        ("HSET", _job(job_id), *fields, *zeros),
        ("XADD", _STREAM, "*", "jobId", job_id),
        ("XADD", _EVENTS, "MAXLEN", "~", 10_000, "*", "event", "added", "jobId", job_id, "name", "noop"),
    ]


def _started(job_id: bytes) -> list[_Command]:
    key = _job(job_id.decode())
    return [("HGETALL", key), ("HSET", key, "state", "active", "processedOn", _NOW, "lastActive", _NOW)]


def _settled(taken: list[tuple[bytes, bytes]]) -> list[_Command]:
    """Return what completes these jobs; each is an entry id and a job id."""
    commands: list[_Command] = []
    for _, job_id in taken:
        key = _job(job_id.decode())
        commands += [
            ("HMGET", key, "state", "lastActive"),
            ("HSET", key, "state", "completed", "returnvalue", "null", "finishedOn", _NOW),
            ("XADD", _EVENTS, "MAXLEN", "~", 10_000, "*", "event", "completed", "jobId", job_id, "returnvalue", "null"),
        ]
    if taken:
        entries = [entry for entry, _ in taken]
        commands += [
            ("ZADD", _COMPLETED, *itertools.chain.from_iterable((_NOW, job_id) for _, job_id in taken)),
            ("HINCRBY", _METRICS, "count", len(taken)),
            ("XACK", _STREAM, _GROUP, *entries),
            ("XDEL", _STREAM, *entries),
        ]
    return commands


def _pack(commands: list[_Command]) -> bytes:
    return b"".join(hiredis.pack_command(command) for command in commands)


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return socket.create_connection((parts.hostname or "", parts.port or 6379))
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(parts.path)
    return connected


class _Blocking:
    """A socket, and nothing around it."""

    def __init__(self, url: str) -> None:
        self._socket = _connect(url)
        self._reader = hiredis.Reader()

    def call(self, commands: list[_Command]) -> None:
        self._socket.sendall(_pack(commands))
        for _ in commands:
            while self._reader.gets() is False:
                self._reader.feed(self._socket.recv(_BYTES))

    def close(self) -> None:
        self._socket.close()


class _Waiting:
    """The same on an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._read = reader.read
        self.writer = writer
        self._reader = hiredis.Reader()

    @classmethod
    async def open(cls, url: str) -> _Waiting:
        return cls(*await asyncio.open_connection(sock=_connect(url)))

    async def call(self, commands: list[_Command]) -> list[Any]:
        self.writer.write(_pack(commands))
        replies: list[Any] = []
        while len(replies) < len(commands):
            while (reply := self._reader.gets()) is not False:
                replies.append(reply)
            if len(replies) < len(commands):
                self._reader.feed(await self._read(_BYTES))
        return replies


class Measured:
    """The bare commands."""

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        server = _Blocking(url)
        begin()
        for number in range(jobs):
            server.call(_added(number, {"at": number}))
        server.close()

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        server = _Blocking(url)
        begin()
        for first in range(0, jobs, _A_CALL):
            numbers = range(first, min(first + _A_CALL, jobs))
            server.call([command for number in numbers for command in _added(number, {"at": number})])
        server.close()

    @asynccontextmanager
    async def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[Settle]:
        client = redis.asyncio.Redis.from_url(url)
        await client.xgroup_create(_STREAM, _GROUP, "0", mkstream=True)
        server = await _Waiting.open(url)
        running = asyncio.ensure_future(_work(server, concurrency, handler))

        async def settle() -> None:
            while await client.xlen(_STREAM):  # noqa: ASYNC110  the server reports to no one
                await asyncio.sleep(0.001)

        yield settle
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.writer.close()
        await client.aclose()

    @asynccontextmanager
    async def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        server = await _Waiting.open(url)
        numbers = itertools.count()
        yield lambda data: server.call(_added(next(numbers), data))
        server.writer.close()

    @contextmanager
    def offering(self, url: str) -> Iterator[Callable[[list[Any]], object]]:
        """Yield a function that adds jobs that are due."""
        server = _Blocking(url)
        numbers = itertools.count()
        yield lambda due: server.call([command for data in due for command in _added(next(numbers), data)])
        server.close()


async def _work(server: _Waiting, count: int, handler: Handler) -> None:
    fetch = ("XREADGROUP", "GROUP", _GROUP, "c", "COUNT", count, "BLOCK", 1000, "STREAMS", _STREAM, ">")
    taken: list[tuple[bytes, bytes]] = []
    while True:
        *_, streams = await server.call([*_settled(taken), fetch])
        taken = [(entry, fields[1]) for entry, fields in streams[0][1]] if streams else []
        replies = await server.call([command for _, job_id in taken for command in _started(job_id)])
        for flat in replies[::2]:
            record = dict(zip(flat[::2], flat[1::2], strict=True))
            handler(json.loads(record[b"data"]))


class ByHand(Measured):
    """The same adds with redis-py's pipelines."""

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        self._add(url, jobs, begin, 1)

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        self._add(url, jobs, begin, _A_CALL)

    def _add(self, url: str, jobs: int, begin: Callable[[], object], at_once: int) -> None:
        with redis.Redis.from_url(url) as client:
            client.ping()
            begin()
            for first in range(0, jobs, at_once):
                with client.pipeline(transaction=False) as pipeline:
                    for number in range(first, min(first + at_once, jobs)):
                        for command in _added(number, {"at": number}):
                            pipeline.execute_command(*command)
                    pipeline.execute()
