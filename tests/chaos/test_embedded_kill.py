"""The embedded server under SIGKILL: whatever is killed, nothing acknowledged is lost and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from orchestration_queue.protocol.call import Call
from orchestration_queue.server import Connection
from tests.embedded import Directory
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

NUMBERS = Call("LRANGE", ("numbers",), (0, -1))
COUNT = Call("INCR", ("counter",))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data")
    yield directory
    directory.end_users()
    gone(directory)


def gone(directory: Directory) -> None:
    wait_until_sync(lambda: not directory.supervisors and not directory.servers, "supervisor and server to be gone")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def ask(writer: subprocess.Popen[str], count: int) -> None:
    """Have the writer make some writes, one after the other, as fast as it can."""
    assert writer.stdin is not None
    writer.stdin.write("\n" * count)
    writer.stdin.flush()


def outcomes(writer: subprocess.Popen[str], count: int) -> list[int | None]:
    """Of the next writes: their numbers, or None where the connection broke."""
    assert writer.stdout is not None
    lines = [writer.stdout.readline().strip() for _ in range(count)]
    return [None if line == "?" else int(line) for line in lines]


@pytest.mark.parametrize("victim", ["server", "supervisor"])
def test_no_acknowledged_write_is_lost_and_the_writer_goes_on(directory: Directory, victim: str) -> None:
    writer = directory.start_user("write")
    found: list[int | None] = []
    kills = 0
    while kills < 5 or None not in found:  # a kill between two writes breaks neither
        kills += 1
        assert kills <= 30, "no kill met a write under way"
        ask(writer, 3000)
        found += outcomes(writer, 100)
        [server] = directory.servers
        kill(server if victim == "server" else directory.supervisors[0])
        found += outcomes(writer, 2900)
        wait_until_sync(lambda: server not in directory.servers, "the server to be dead")  # noqa: B023
        ask(writer, 1)
        found += outcomes(writer, 1)
        assert found[-1] is not None, "a write after the restart was not carried out"
        assert len(directory.servers) == len(directory.supervisors) == 1
        assert directory.servers != [server]
    with Connection.open(directory.url, libraries=()) as connection:
        kept = [int(number) for number in connection.execute(NUMBERS)]
    assert {number for number in found if number is not None} <= set(kept)
    assert kept == sorted(set(kept)), "a write was applied twice, or out of order"
    assert found.count(None) <= kills, "a kill met more than one write under way"


def test_killing_the_only_user_ends_keeper_and_server(directory: Directory) -> None:
    user = directory.start_user("hold")
    assert user.stdout is not None
    assert user.stdout.readline() == "1\n"
    assert len(directory.servers) == len(directory.supervisors) == 1
    user.kill()
    gone(directory)


def test_killing_the_keeper_takes_its_server_along(directory: Directory) -> None:
    with Connection.open(directory.url, libraries=()) as connection:
        connection.execute(COUNT)
        kill(directory.supervisors[0])
        gone(directory)
        assert connection.execute(COUNT) == 2


def test_killing_everything_at_once_loses_nothing(directory: Directory) -> None:
    writer = directory.start_user("write")
    ask(writer, 5000)
    found = outcomes(writer, 500)
    for pid in (writer.pid, *directory.supervisors, *directory.servers):
        kill(pid)
    gone(directory)
    with Connection.open(directory.url, libraries=()) as connection:
        assert {int(number) for number in connection.execute(NUMBERS)} >= set(found)


def test_a_blocked_reader_goes_on_after_the_server_was_killed(directory: Directory) -> None:
    wait = Call("BLPOP", ("jobs",), (0,))
    replies: SimpleQueue[object] = SimpleQueue()
    with Connection.open(directory.url, libraries=()) as connection:
        reader = threading.Thread(target=lambda: replies.put(connection.execute(wait, repeatable=True)), daemon=True)
        reader.start()
        wait_until_sync(lambda: b"blocked_clients:1" in connection.execute(Call("INFO")), "the reader to wait")
        [server] = directory.servers
        kill(server)
        wait_until_sync(lambda: server not in directory.servers, "the server to be dead")
        assert connection.execute(Call("RPUSH", ("jobs",), ("a",))) == 1
        assert replies.get(timeout=60) == [b"jobs", b"a"]
        reader.join(60)


def test_ending_the_keeper_politely_ends_the_server_cleanly(directory: Directory) -> None:
    with Connection.open(directory.url, libraries=()) as connection:
        connection.execute(COUNT)
        os.kill(directory.supervisors[0], signal.SIGTERM)
        gone(directory)
        assert "ready to exit" in (directory.path / "supervisor.log").read_text()
        assert connection.execute(COUNT) == 2


def test_a_forked_child_that_outlives_its_parents_connection_counts_as_a_user(directory: Directory) -> None:
    proceed, parent_closed = os.pipe()
    with Connection.open(directory.url, libraries=()) as connection:
        [server] = directory.servers
        if (child := os.fork()) == 0:
            count = 0
            try:
                os.read(proceed, 1)
                count = connection.execute(COUNT)
            finally:
                os._exit(count)
    os.write(parent_closed, b"!")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    started = re.findall(r"server (\d+) started", (directory.path / "supervisor.log").read_text())
    assert started == [str(server)]
    os.close(proceed)
    os.close(parent_closed)
