"""Servers without a command, as clones are, or where it was renamed: one sentence names it and says what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from orchestration_queue.client import AsyncQueue
from orchestration_queue.doctor import run_checks
from orchestration_queue.errors import ServerError, UnsupportedServerError
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.library import command_in_line
from orchestration_queue.server import Connection, parse_url
from orchestration_queue.server.driver_errors import refused
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.conftest import start_server
from tests.faces import Face
from tests.processes import OQ
from tests.workers import QUICK, working

REDIS = Path("/usr/bin/redis-server")
SERVERS = [None, pytest.param(str(REDIS), marks=pytest.mark.skipif(not REDIS.exists(), reason="needs Debian's Redis"))]


@pytest.fixture(params=SERVERS, ids=["valkey", "redis"])
def without(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Starts a server that lacks a command; returns its URL."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*commands: str) -> str:
        renamed = [word for command in commands for word in ("--rename-command", command, "")]
        started.append(start_server(tmp_path / "s", *renamed, binary=request.param))
        return f"unix://{tmp_path}/s"

    yield start
    for process in started:
        process.kill()
        process.wait(60)


def names(error: UnsupportedServerError, command: str) -> None:
    message = str(error)
    assert error.command == command
    assert f"lacks the command {command}; use Valkey" in message
    assert "\n" not in message
    assert ". " not in message.replace("unix:///", "")
    assert "lua" not in message.lower()


async def work(job: AsyncActiveJob) -> None:
    """Do nothing."""


@pytest.mark.parametrize("command", ["FUNCTION", "FCALL"])
@pytest.mark.parametrize("name", ["sync", "async"])
async def test_a_client_names_the_command_that_its_server_lacks(
    without: Callable[..., str], name: str, command: str, queue_name: str
) -> None:
    with pytest.raises(UnsupportedServerError) as caught:
        await Face(name, without(command)).queue(queue_name).add("work")
    names(caught.value, command)


@pytest.mark.parametrize("command", ["FUNCTION", "FCALL", "TIME"])
async def test_a_worker_ends_and_names_the_command_that_its_server_lacks(
    without: Callable[..., str], command: str, queue_name: str
) -> None:
    worker = Worker(queue_name, work, url=without(command), options=QUICK)
    with pytest.raises(UnsupportedServerError) as caught:
        await worker.run()
    names(caught.value, command)


def test_a_worker_process_says_it_in_one_line(without: Callable[..., str], queue_name: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("def work(job):\n    pass\n")
    done = subprocess.run(
        [OQ, "worker", "jobs.py:work", "--queue", queue_name, "--url", without("TIME")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 4
    assert "lacks the command TIME; use Valkey" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["FUNCTION", "FCALL", "FCALL_RO", "TIME"])
def test_the_doctor_names_it(without: Callable[..., str], command: str) -> None:
    findings = [finding.what for finding in run_checks(without(command), None)]
    assert f"The server lacks the command {command}" in findings


async def test_commands_that_only_help_may_be_missing(without: Callable[..., str], queue_name: str) -> None:
    """Without HELLO a server speaks RESP2 only."""
    url = without("CONFIG", "INFO", "CLIENT", "COMMAND", "MEMORY", "SLOWLOG", "ACL", "DEBUG", "SCRIPT", "HELLO", "KEYS")
    async with AsyncQueue(queue_name, url=url) as queue, working(queue, work, url):
        assert await (await queue.add("work")).wait(60) is None
    with Connection.open(url) as connection, pytest.raises(UnsupportedServerError) as caught:
        connection.execute(Call("INFO"))
    names(caught.value, "INFO")


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("unknown command `FCALL`, with args beginning with: `f`, `0`, ", "FCALL"),
        ("unknown command 'FUNCTION', with args beginning with: 'LOAD' '#!lua name=glidemq\n-- x' ", "FUNCTION"),
        ("unknown command FCALL", "FCALL"),
        ("Unknown subcommand 'LOAD'. Try FUNCTION HELP.", "FUNCTION"),
        ("Unknown Redis command called from script script: f_1, on @user_function:1.", ""),
        ("Unknown command called from script script: on @user_function:1.", ""),
    ],
)
def test_each_way_to_say_it_is_understood(said: str, command: str) -> None:
    error = refused(parse_url("redis://host"), "a call", ResponseError(said))
    assert isinstance(error, UnsupportedServerError)
    assert error.command == command
    assert "\n" not in str(error)


def test_another_refusal_is_none() -> None:
    error = refused(parse_url("redis://host"), "a call", ResponseError("wrong kind of value"))
    assert type(error) is ServerError


def test_a_line_that_calls_nothing_names_no_command() -> None:
    assert command_in_line("oq1_tick", 1) == ""
    assert command_in_line("oq1_tick", 10**6) == ""
    assert command_in_line("no_such_function", 1) == ""
