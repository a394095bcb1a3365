"""A real server whose clock, together with this process's, is where the replay has arrived."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import redis

from orchestration_queue.server import clock
from orchestration_queue.testing import TimeMachine
from tests.conftest import start_server

__all__ = ["DayClock", "shifted_server"]


class DayClock:
    """The clocks of a server and of this process's clients. They change only when they are moved.

    The server's has a resolution of a second: its own times, such as ids of events, are rounded down.

    Attributes:
        url: The server.
    """

    def __init__(self, url: str, file: Path, client: redis.Redis) -> None:
        self.url = url
        self._file = file
        self._client = client
        self._second = 0

    def move(self, at_ms: int) -> None:
        """Set both clocks to a time, epoch milliseconds, and wait until the server has noticed."""
        clock.travel(timedelta(milliseconds=at_ms - time.time_ns() // 1_000_000))
        if (second := at_ms // 1000) > self._second:
            self._second = second
            os.utime(self._file, (second, second))
            deadline = time.monotonic() + 60
            while self._client.time()[0] != second:  # it reads its clock once a millisecond
                assert time.monotonic() < deadline, "the server's clock does not follow"

    async def keep(self) -> None:
        """Let time pass at its usual speed, until cancelled."""
        start_ms, began = clock.now_ms(), time.monotonic()
        while True:
            self.move(start_ms + round((time.monotonic() - began) * 1000))
            await asyncio.sleep(0.2)


@contextmanager
def shifted_server(start: datetime) -> Iterator[DayClock]:
    """A server whose clock is at ``start``, in a time machine.

    The clock is libfaketime's, which follows the time of a file.
    """
    library = Path(str(import_module("libfaketime").__file__)).parent / "vendor/libfaketime/src/libfaketime.so.1"
    with tempfile.TemporaryDirectory() as directory, TimeMachine():
        file, socket = Path(directory, "clock"), Path(directory, "valkey.sock")
        file.touch()
        os.utime(file, (start.timestamp(), start.timestamp()))
        variables = {
            "LD_PRELOAD": str(library),
            "FAKETIME": "%",
            "FAKETIME_FOLLOW_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        process = start_server(socket, "--appendonly", "yes", "--appendfsync", "no", env=os.environ | variables)
        client = redis.Redis(unix_socket_path=str(socket))
        try:
            moved = DayClock(f"unix://{socket}", file, client)
            moved.move(round(start.astimezone(UTC).timestamp() * 1000))
            yield moved
        finally:
            client.close()
            process.send_signal(signal.SIGTERM)
            process.wait(10)
