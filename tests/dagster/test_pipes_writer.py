"""The writer of Pipes, which connects by redis-py alone: to any URL of this package, and to a server that is silent."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
import redis
from dagster_pipes import DagsterPipesError

from orchestration_queue.dagster.pipes import PipesStreamContextLoader, PipesStreamMessageWriter, writer
from tests.conftest import start_server
from tests.integration.test_tls import CERTIFICATE, port
from tests.waiting import wait_until_sync

__all__ = ["port"]

PARAMS = {"results": "pipes:results", "logs": "pipes:logs", "limit": 100, "ttl_ms": 60_000, "context": "pipes:context"}


@pytest.fixture
def keys(raw: redis.Redis) -> redis.Redis:
    raw.set("pipes:context", '{"run_id": "r"}', ex=60)
    return raw


def report(url: str) -> None:
    with PipesStreamMessageWriter(url).open(PARAMS) as channel:
        channel.write_message({"__dagster_pipes_version": "0.1", "method": "closed", "params": None})


@pytest.mark.parametrize(
    "query", ["", "?timeout=9&connect_timeout=9", "?db=0&timeout=9", "?username=default&password="]
)
def test_every_option_of_a_url_is_taken(server_url: str, keys: redis.Redis, query: str) -> None:
    with PipesStreamContextLoader(server_url + query).load_context(PARAMS) as context:
        assert context["run_id"] == "r"
    report(server_url + query)
    assert keys.xlen("pipes:results") == 1


@pytest.mark.parametrize(
    "query", ["ssl_ca_certs={}", "ssl_ca_certs={}&ssl_check_hostname=true&timeout=9", "ssl_cert_reqs=none"]
)
def test_every_option_of_tls_is_taken(port: int, keys: redis.Redis, query: str) -> None:
    report(f"rediss://localhost:{port}/0?{query.format(CERTIFICATE)}")
    assert keys.xlen("pipes:results") == 1


@pytest.mark.parametrize("option", ["timeout", "connect_timeout"])
def test_a_limit_that_is_no_number_is_refused(option: str) -> None:
    with pytest.raises(
        DagsterPipesError, match=r"^A time limit of the server's URL is no number .*'x'\); write timeout=30\.$"
    ):
        report(f"redis://127.0.0.1:1?{option}=x")


def test_a_message_counts_once_although_its_server_was_silent(tmp_path: Path) -> None:
    server = start_server(tmp_path / "s")
    try:
        server.send_signal(signal.SIGSTOP)
        writing = threading.Thread(target=report, args=(f"unix://{tmp_path / 's'}?timeout=0.5",))
        writing.start()
        writing.join(2)
        assert writing.is_alive()
        server.send_signal(signal.SIGCONT)
        writing.join(60)
        assert not writing.is_alive()
        with redis.Redis(unix_socket_path=str(tmp_path / "s"), decode_responses=True) as raw:
            wait_until_sync(lambda: raw.xlen("pipes:results"), "the message")
            assert {fields["seq"] for _, fields in raw.xrange("pipes:results")} == {
                "1"
            }  # the reader ignores repetitions
    finally:
        server.send_signal(signal.SIGCONT)
        server.kill()
        server.wait(60)


def test_a_server_that_stays_silent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_PATIENCE_S", 0.5)
    server = start_server(tmp_path / "s")
    try:
        server.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        with pytest.raises(redis.TimeoutError):
            report(f"unix://{tmp_path / 's'}?timeout=0.4")
        assert time.monotonic() - begun < 10  # the first try's limit, the patience, and the last try's limit
    finally:
        server.send_signal(signal.SIGCONT)
        server.kill()
        server.wait(60)
