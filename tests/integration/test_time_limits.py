"""Servers that do not reply: each call ends in time, and says whether it may have been applied."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.errors import InvalidOptionError, ServerError, TransportError
from orchestration_queue.protocol.call import Call
from orchestration_queue.server import AsyncConnection, Connection
from tests.chaos.saboteur import Saboteur
from tests.conftest import start_server
from tests.faces import Face
from tests.waiting import wait_until, wait_until_sync

INCR = Call("INCR", ("counter",))
SHORT = "timeout=1&connect_timeout=3"  # a busy machine takes a part of them

faces = pytest.mark.parametrize("name", ["sync", "async"])


class Server:
    """A server of one test, also behind a proxy."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s"
        self.process: subprocess.Popen[bytes] = start_server(self.path)
        self.raw = redis.Redis(unix_socket_path=str(self.path), decode_responses=True, protocol=2)
        self.url = f"unix://{self.path}?{SHORT}"

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.raw.close()
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.end()


def one_sentence(error: BaseException) -> str:
    message = str(error)
    assert "\n" not in message
    assert ". " not in message
    return message


@pytest.mark.parametrize("option", ["timeout", "connect_timeout"])
@pytest.mark.parametrize("value", [0, -1, timedelta(0), "5", float("nan"), True, [5]])
@pytest.mark.parametrize("make", [Connection, AsyncConnection])
def test_a_limit_must_be_a_duration(make: Any, option: str, value: object) -> None:
    with pytest.raises(InvalidOptionError, match=f"^`{option}` must be .*; pass `{option}=5`") as caught:
        make("redis://127.0.0.1:1", **{option: value})
    one_sentence(caught.value)


def test_a_connections_own_limits_go_before_its_urls(server: Server) -> None:
    url = f"unix://{server.path}?timeout=60&connect_timeout=60"
    with Connection(url, timeout=0.9, connect_timeout=2.5, libraries=()) as connection:
        connection.execute(INCR)
        with server.stopped():
            with connection.duplicate() as duplicate, pytest.raises(TransportError, match="Cannot reach") as caught:
                duplicate.execute(INCR)
            assert "trying for 60" not in str(caught.value)
            with pytest.raises(TransportError, match=r"within 0\.9 s"):
                connection.execute(INCR)


@faces
async def test_a_call_to_a_server_that_hangs_ends_and_says_that_it_may_have_been_applied(
    server: Server, name: str, queue_name: str
) -> None:
    async with Face(name, server.url).queue(queue_name) as queue:
        await queue.add("work")
        with server.stopped():
            with pytest.raises(TransportError, match="did not reply to glidemq_addJob within 1 s") as caught:
                await queue.add("work")
            assert caught.value.maybe_applied
            one_sentence(caught.value)
            with pytest.raises(TransportError, match="Cannot reach") as caught:
                await queue.add("work")
            assert not caught.value.maybe_applied, "the other sockets were dropped, and a new one shows the hang sooner"
        await wait_until(lambda: server.raw.xlen(queue.keys.stream) == 2, "the server to carry out what it was sent")
        assert (await queue.add("work")).id == "3"


@faces
async def test_connecting_to_a_server_that_hangs_ends(server: Server, name: str, queue_name: str) -> None:
    with server.stopped():
        with pytest.raises(TransportError, match="Cannot reach") as caught:
            await Face(name, server.url).queue(queue_name).add("work")
        assert not caught.value.maybe_applied
        one_sentence(caught.value)


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
@faces
async def test_connecting_ends_where_a_host_accepts_and_says_nothing(name: str, scheme: str, queue_name: str) -> None:
    heard: list[bytes] = []
    left: list[object] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1000):
            heard.append(chunk)
        writer.close()
        await writer.wait_closed()
        left.append(writer)

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(TransportError, match="Cannot reach") as caught:
            await Face(name, f"{scheme}://:secret@127.0.0.1:{port}?connect_timeout=3").queue(queue_name).add("work")
        assert not caught.value.maybe_applied
        assert heard, "it was not even greeted"
        await wait_until(lambda: left, "the client to disconnect")


@faces
async def test_a_proxy_that_swallows_requests_is_left_for_a_new_connection(
    server: Server, name: str, queue_name: str, tmp_path: Path
) -> None:
    with Saboteur(server.path, tmp_path / "p") as proxy:
        async with Face(name, f"{proxy.url}?timeout=1&connect_timeout=60").queue(queue_name) as queue:
            await queue.add("work")
            proxy.hold_requests("glidemq_addJob")
            with pytest.raises(TransportError, match="did not reply") as caught:
                await queue.add("work")
            assert caught.value.maybe_applied
            proxy.relent()
            assert (await queue.add("work")).id == "2"


@contextmanager
def script(server: Server, *, is_silent: bool) -> Iterator[None]:
    """A script of another client that runs until the block ends."""
    server.raw.config_set("busy-reply-threshold", 600_000 if is_silent else 1)

    def run() -> None:
        with redis.Redis(unix_socket_path=str(server.path)) as other, pytest.raises(redis.RedisError):
            other.eval("redis.call('SET', 'mark', 'x') while true do end", 0)

    def is_running() -> bool:
        try:
            with redis.Redis(unix_socket_path=str(server.path), socket_timeout=0.2) as other:
                return not other.ping()
        except (redis.ResponseError, redis.TimeoutError):
            return True

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until_sync(is_running, "the script to run")
        yield
    finally:
        server.process.kill()
        thread.join()


@faces
async def test_a_call_ends_while_anothers_script_keeps_the_server_silent(
    server: Server, name: str, queue_name: str
) -> None:
    async with Face(name, server.url).queue(queue_name) as queue:
        await queue.add("work")
        with script(server, is_silent=True), pytest.raises(TransportError, match="did not reply") as caught:
            await queue.add("work")
        assert caught.value.maybe_applied


@faces
async def test_a_call_that_a_busy_server_refuses_is_refused_in_the_end(
    server: Server, name: str, queue_name: str
) -> None:
    async with Face(name, server.url).queue(queue_name) as queue:
        await queue.add("work")
        with script(server, is_silent=False), pytest.raises(ServerError, match="SCRIPT KILL") as caught:
            await queue.add("work")
        assert caught.value.code == "BUSY"


@faces
async def test_a_blocking_read_may_take_its_own_time_longer(server: Server, name: str) -> None:
    read = Call("BLPOP", ("nothing",), (2,))
    if name == "async":
        async with AsyncConnection(server.url, timeout=1, connect_timeout=60, libraries=()) as connection:
            assert await connection.execute(read) is None
    else:
        with Connection(server.url, timeout=1, connect_timeout=60, libraries=()) as sync:
            assert sync.execute(read) is None


async def test_calls_that_wait_for_a_socket_end_too_and_were_not_applied(server: Server) -> None:
    async with await AsyncConnection.open(server.url, libraries=()) as connection:
        with server.stopped():
            ended = await asyncio.gather(*(connection.execute(INCR) for _ in range(100)), return_exceptions=True)
        assert {type(error) for error in ended} == {TransportError}
        sent = [error for error in ended if isinstance(error, TransportError) and error.maybe_applied]
        await wait_until(lambda: int(server.raw.get("counter") or 0) >= 1, "the server to continue")
        assert await connection.execute(INCR) <= len(sent) + 1


async def test_a_busy_event_loop_is_no_silence_of_the_server(server: Server) -> None:
    async with await AsyncConnection.open(server.url, connect_timeout=60, libraries=()) as connection:
        for _ in range(2):
            calls = [asyncio.ensure_future(connection.execute(INCR)) for _ in range(5)]
            await asyncio.sleep(0)
            time.sleep(1.5)  # noqa: ASYNC251  what is tested
            await asyncio.gather(*calls)
        assert await connection.execute(INCR) == 11


async def test_a_slow_maker_of_batches_is_no_silence_of_the_server(server: Server) -> None:
    def batches() -> Iterator[list[Call]]:
        for _ in range(2):
            time.sleep(1.5)
            yield [INCR]

    async with await AsyncConnection.open(server.url, libraries=()) as connection:
        assert await connection.pipelines(batches()) == [[1], [2]]
    with Connection.open(server.url, libraries=()) as sync:
        assert sync.pipelines(batches()) == [[3], [4]]
