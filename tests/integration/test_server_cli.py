"""`oq server`: the embedded server outlives its users until it is stopped, and keeps its data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from orchestration_queue.cli.main import app
from orchestration_queue.client import Queue
from orchestration_queue.server import Connection
from orchestration_queue.server.embedded.supervisor import PIN
from tests.embedded import Directory
from tests.processes import OQ
from tests.waiting import wait_until_sync


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data")
    yield directory
    directory.end_users()
    (directory.path / PIN).unlink(missing_ok=True)
    wait_until_sync(lambda: not directory.supervisors and not directory.servers, "the server to leave", 60)


def oq(directory: Directory, verb: str, *arguments: str) -> Result:
    environment = {"OQ_URL": directory.url, "COLUMNS": "200"}
    return CliRunner().invoke(app, ["server", verb, *arguments], env=environment)


def told(directory: Directory, verb: str, code: int = 0) -> Any:
    result = oq(directory, verb, "--json")
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout)


def test_it_runs_from_start_to_stop_whoever_comes_and_goes(directory: Directory) -> None:
    # A process of its own, as a user's: what it starts must outlive it, and not hold its output open.
    done = subprocess.run(
        [OQ, "server", "start"],
        env={**os.environ, "OQ_URL": directory.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (server,), (supervisor,) = directory.servers, directory.supervisors
    assert f"is kept running (process {server})" in done.stdout
    with Queue("emails", url=directory.url) as queue:
        queue.add("send")
    beside = Directory(directory.path.with_name("beside"))
    assert beside.start_user("once").communicate(timeout=60)[0] == "1\n"
    wait_until_sync(lambda: beside.supervisors == beside.servers == [], "a server without users to leave", 60)
    beside.end_users()
    assert (directory.servers, directory.supervisors) == ([server], [supervisor])
    assert told(directory, "stop") == {"directory": str(directory.path), "was_running": True, "running": False}
    # A process that ends gives up its lock, by which others know of it, a moment before its working directory.
    wait_until_sync(lambda: directory.servers == directory.supervisors == [], "both processes to be gone", 60)
    with Queue("emails", url=directory.url) as queue:
        assert queue.counts().waiting == 1


def test_the_status_says_where_since_when_and_how_full(directory: Directory) -> None:
    before = datetime.now(UTC)
    started = told(directory, "start")
    with Queue("emails", url=directory.url) as queue, Queue("reports", url=directory.url) as other:
        queue.add("send")
        other.add("write")
    said = told(directory, "status")
    assert said["pid"] == started["pid"] == directory.servers[0]
    assert (said["running"], said["kept"], said["directory"]) == (True, True, str(directory.path))
    assert Path(said["socket"]).is_socket()
    assert said["jobs"]["waiting"] == 2
    assert said["memory_bytes"] > 100_000
    assert abs((datetime.fromisoformat(said["since"]) - before).total_seconds()) < 60
    lines = dict(line.strip().split(maxsplit=1) for line in oq(directory, "status").stdout.splitlines())
    assert (lines["pid"], lines["jobs"]) == (str(said["pid"]), "2 waiting")
    assert lines["kept"] == "until `oq server stop`"


def test_starting_and_stopping_twice_is_as_once(directory: Directory) -> None:
    first = told(directory, "start")
    assert "was kept running already" in oq(directory, "start").stdout
    assert told(directory, "status")["pid"] == first["pid"]
    assert oq(directory, "stop").stdout == f"The server in {directory.path} has ended.\n"
    assert oq(directory, "stop").stdout == f"No server runs in {directory.path}.\n"


def test_a_running_server_is_kept_from_now_on(directory: Directory) -> None:
    with Connection.open(directory.url, libraries=()):
        (server,) = directory.servers
        assert told(directory, "status")["kept"] is False
        assert told(directory, "start")["pid"] == server
    assert told(directory, "status")["pid"] == server
    assert told(directory, "stop")["running"] is False


def test_a_server_in_use_ends_with_its_last_user(directory: Directory) -> None:
    told(directory, "start")
    with Connection.open(directory.url, libraries=()):
        assert "is in use" in oq(directory, "stop").stdout
        assert told(directory, "status")["kept"] is False
    wait_until_sync(lambda: not directory.supervisors and not directory.servers, "the server to leave", 60)


def test_a_killed_server_comes_back_and_a_killed_keeper_does_with_the_next_user(directory: Directory) -> None:
    server = told(directory, "start")["pid"]
    os.kill(server, signal.SIGKILL)
    wait_until_sync(lambda: directory.servers not in ([], [server]), "another server", 60)
    os.kill(directory.supervisors[0], signal.SIGKILL)
    wait_until_sync(lambda: not directory.servers, "the server to die with its supervisor", 60)
    assert told(directory, "status", 3)["running"] is False
    assert told(directory, "start")["kept"] is True
    assert told(directory, "stop")["running"] is False


def test_without_a_server_nothing_is_made(directory: Directory) -> None:
    assert told(directory, "status", 3) == {"running": False, "directory": str(directory.path)}
    assert told(directory, "stop") == {"directory": str(directory.path), "was_running": False, "running": False}
    assert not directory.path.exists()


@pytest.mark.parametrize("verb", ["start", "stop", "status"])
def test_other_servers_are_not_ours_to_start_or_stop(verb: str, server_url: str) -> None:
    for url in (server_url, "redis://:secret@nowhere:1"):
        result = CliRunner().invoke(app, ["server", verb, "--url", url])
        assert result.exit_code == 2
        assert "is not an embedded one" in result.stderr
        assert "secret" not in result.stderr


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for verb in ("start", "stop", "status"):
        result = CliRunner().invoke(app, ["server", verb, "--url", f"embedded://{tmp_path / 'file'}"])
        assert result.exit_code == 2, verb
        assert "can't store its data" in result.stderr
