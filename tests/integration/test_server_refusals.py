"""What a real server refuses for reasons of its own: the call is not applied, and sent again if the reason passes."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Call
from orchestration_queue.server import Connection
from orchestration_queue.server.refusals import REFUSALS_OF_SERVERS, Resend
from tests.chaos.saboteur import Saboteur
from tests.conftest import start_server
from tests.waiting import wait_until_sync

INCR = Call("INCR", ("counter",))
BUSY = "redis.call('PING') while true do end"
BUSY_WRITER = "redis.call('SET', 'mark', 'x') while true do end"


class Server:
    """A server of one test."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.path = folder / "s"
        self.folder = folder / "data"
        self.folder.mkdir()
        settings = ("--dir", str(self.folder), "--enable-debug-command", "yes", "--busy-reply-threshold", "1")
        self.process: subprocess.Popen[bytes] = start_server(self.path, *settings, *arguments)
        self.raw = redis.Redis(unix_socket_path=str(self.path), decode_responses=True, protocol=2)
        self.url = f"unix://{self.path}"

    def ask(self, *words: object) -> Any:
        client: Any = self.raw  # this method of it has no types
        return client.execute_command(*map(str, words))

    def refused(self, code: str) -> int:
        """How many calls the server refused with this code."""
        return int(self.raw.info("errorstats").get(f"errorstat_{code}", {"count": 0})["count"])

    def run(self, script: str) -> threading.Thread:
        """Run a script that does not end, and return when the server says so to others."""

        def run() -> None:
            with redis.Redis(unix_socket_path=str(self.path)) as other, pytest.raises(redis.RedisError):
                other.eval(script, 0)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until_sync(self.is_busy, "the script to make the server busy")
        return thread

    def is_busy(self) -> bool:
        try:
            return not self.raw.ping()
        except redis.ResponseError as error:
            return str(error).startswith("BUSY ")

    def end(self) -> None:
        self.raw.close()
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*arguments: str) -> Server:
        started.append(Server(tmp_path, *arguments))
        return started[-1]

    yield start
    for server in started:
        server.end()


def is_demoted(server: Server) -> Callable[[], object]:
    server.ask("REPLICAOF", "127.0.0.1", 1)
    return lambda: server.ask("REPLICAOF", "NO", "ONE")


def is_cut_off(server: Server) -> Callable[[], object]:
    server.ask("CONFIG", "SET", "replica-serve-stale-data", "no")
    return is_demoted(server)


def lacks_replicas(server: Server) -> Callable[[], object]:
    server.ask("CONFIG", "SET", "min-replicas-to-write", 1)
    return lambda: server.ask("CONFIG", "SET", "min-replicas-to-write", 0)


def serves_no_slots(server: Server) -> Callable[[], object]:
    server.ask("CLUSTER", "DELSLOTSRANGE", 0, 16383)
    return lambda: server.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)


def loads(server: Server) -> Callable[[], object]:
    for number in range(500):
        server.ask("SET", f"key:{number}", "x" * 1000)
    server.ask("CONFIG", "SET", "loading-process-events-interval-bytes", 1024)
    server.ask("CONFIG", "SET", "key-load-delay", 10_000)  # microseconds

    def reload() -> None:
        with redis.Redis(unix_socket_path=str(server.path)) as other:
            other.execute_command("DEBUG", "RELOAD")

    loading = threading.Thread(target=reload)
    loading.start()
    wait_until_sync(lambda: server.raw.info("persistence")["loading"], "the server to load its data")

    def hurry() -> None:
        server.ask("CONFIG", "SET", "key-load-delay", 0)
        loading.join()

    return hurry


PASSING = {
    "READONLY": is_demoted,
    "MASTERDOWN": is_cut_off,
    "NOREPLICAS": lacks_replicas,
    "CLUSTERDOWN": serves_no_slots,
    "LOADING": loads,
}


@pytest.mark.parametrize("code", PASSING)
def test_a_call_is_sent_again_until_the_reason_has_passed_and_is_applied_once(
    start: Callable[..., Server], code: str
) -> None:
    server = start("--cluster-enabled", "yes") if code == "CLUSTERDOWN" else start()
    if code == "CLUSTERDOWN":
        server.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until_sync(lambda: server.ask("CLUSTER INFO")["cluster_state"] == "ok", "the slots to be served")
    with Connection.open(server.url, libraries=(), connect_timeout=60) as connection, ThreadPoolExecutor(1) as thread:
        assert connection.execute(INCR) == 1
        relent = PASSING[code](server)
        before = server.refused(code)
        calling = thread.submit(connection.pipeline, [INCR, INCR])
        wait_until_sync(lambda: server.refused(code) > before + 3, "the calls to be refused again")
        relent()
        assert calling.result(60) == [2, 3]
    assert REFUSALS_OF_SERVERS[code].resend is not Resend.NO


def test_a_call_waits_for_the_end_of_anothers_script(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start()
    with (
        Saboteur(server.path, tmp_path / "p") as proxy,
        Connection.open(proxy.url, libraries=(), connect_timeout=60) as connection,
        ThreadPoolExecutor(1) as thread,
    ):
        assert connection.execute(INCR) == 1
        script = server.run(BUSY)
        before = proxy.passed
        calling = thread.submit(connection.execute, INCR)
        wait_until_sync(lambda: proxy.passed > before + 2, "the call to be refused again")
        server.ask("SCRIPT", "KILL")
        assert calling.result(60) == 2
        script.join()


def test_a_new_client_waits_for_the_end_of_anothers_script(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start()
    script = server.run(BUSY)
    with Saboteur(server.path, tmp_path / "p") as proxy, ThreadPoolExecutor(1) as thread:
        opening = thread.submit(Connection.open, proxy.url, connect_timeout=60)
        wait_until_sync(lambda: proxy.passed > 3, "the client to be refused again")
        server.ask("SCRIPT", "KILL")
        with opening.result(60) as connection:
            assert connection.execute(INCR) == 1
    script.join()


def test_a_blocking_read_of_a_demoted_primary_goes_on_at_the_next_primary(start: Callable[..., Server]) -> None:
    server = start()
    with Connection.open(server.url, libraries=(), connect_timeout=60) as connection, ThreadPoolExecutor(1) as thread:
        reading = thread.submit(connection.execute, Call("BLPOP", ("here",), (0,)))
        blocked = lambda: server.raw.info("clients")["blocked_clients"]  # noqa: E731
        wait_until_sync(blocked, "the read to wait")
        promote = is_demoted(server)
        wait_until_sync(lambda: server.refused("UNBLOCKED") and server.refused("READONLY"), "the read to be refused")
        promote()
        wait_until_sync(blocked, "the read to wait again")
        server.ask("RPUSH", "here", "a")
        assert reading.result(60) == [b"here", b"a"]


def cannot_save(server: Server) -> None:
    shutil.rmtree(server.folder)
    server.ask("CONFIG", "SET", "save", "3600 1")
    server.ask("BGSAVE")
    wait_until_sync(lambda: server.raw.info("persistence")["rdb_last_bgsave_status"] == "err", "the snapshot to fail")


def is_full(server: Server) -> None:
    server.ask("CONFIG", "SET", "maxmemory", 1)


def forbids_it(server: Server) -> None:
    server.ask("ACL", "SETUSER", "default", "-incr")


LASTING = {"MISCONF": cannot_save, "OOM": is_full, "NOPERM": forbids_it}


@pytest.mark.parametrize("code", LASTING)
def test_what_only_an_operator_can_change_is_refused_at_once_with_advice(
    start: Callable[..., Server], code: str
) -> None:
    server = start()
    with Connection.open(server.url, libraries=(), connect_timeout=60) as connection:
        LASTING[code](server)
        before = server.refused(code)
        with pytest.raises(ServerError) as caught:
            connection.execute(INCR)
        assert server.refused(code) == before + 1
    assert caught.value.code == code
    assert str(caught.value).endswith(f"; {REFUSALS_OF_SERVERS[code].advice}.")
    assert REFUSALS_OF_SERVERS[code].resend is Resend.NO


def test_a_script_that_has_written_cannot_be_ended(start: Callable[..., Server]) -> None:
    server = start()
    with Connection.open(server.url, libraries=()) as connection:
        script = server.run(BUSY_WRITER)
        with pytest.raises(ServerError) as caught:
            connection.execute(Call("SCRIPT", args=("KILL",)))
        assert caught.value.code == "UNKILLABLE"
        server.process.kill()
        script.join()


def test_every_code_of_the_table_is_tested() -> None:
    here = {*PASSING, *LASTING, "BUSY", "UNBLOCKED", "UNKILLABLE"}
    elsewhere = {"TRYAGAIN"}  # only a cluster says it: test_cluster
    assert here | elsewhere == set(REFUSALS_OF_SERVERS)
