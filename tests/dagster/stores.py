"""The servers that keep what a deployment knows, killed and started again: the queue's, and Dagster's PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import start_server

__all__ = ["Database", "QueueServer", "find_postgres", "postgres", "queue_server"]


class QueueServer:
    """A server that has each write on its disk before it answers.

    With ``fsync="no"``, the write is in its file: the server can be killed, not the machine.
    """

    def __init__(self, directory: Path, fsync: str = "always") -> None:
        self._fsync = fsync
        self._socket = directory / "queue.sock"
        self.url = f"unix://{self._socket}"
        self.start()

    def start(self) -> None:
        """Start it with all that it had before."""
        self._process = start_server(self._socket, "--appendonly", "yes", "--appendfsync", self._fsync)

    def kill(self) -> None:
        """End it as a power failure does."""
        self._process.kill()
        self._process.wait(60)


@contextmanager
def queue_server(directory: Path, fsync: str = "always") -> Iterator[QueueServer]:
    """A server of the test's own."""
    server = QueueServer(directory, fsync)
    try:
        yield server
    finally:
        server.kill()


def find_postgres() -> Path | None:
    """Return the directory of Debian's newest PostgreSQL; None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class Database:
    """A PostgreSQL of the test's own.

    Attributes:
        url: Where it is, as the chart's values tell users to write it.
        log: What it logs, each connection among it.
    """

    def __init__(self, programs: Path, directory: Path) -> None:
        user: tuple[str, ...] = ()
        if os.getuid() == 0:  # which PostgreSQL refuses
            shutil.chown(directory, "postgres")
            user = ("runuser", "-u", "postgres", "--")
        data = directory / "data"
        self._directory = directory
        self._control = [*user, str(programs / "pg_ctl"), "-D", str(data), "-w"]
        self.url = f"postgresql+psycopg2://dagster@/postgres?host={directory}"
        self.log = directory / "log"
        self._run([*user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "dagster", "--no-sync"])
        self.start()

    def start(self) -> None:
        """Start it with all that it had before."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self._directory}"
        options += " -c fsync=off -c log_connections=on"
        self._run([*self._control, "-l", str(self.log), "-o", options, "start"])

    def kill(self) -> None:
        """End it and its connections at once, so that the next start recovers what was committed."""
        self._run([*self._control, "-m", "immediate", "stop"])

    def _run(self, command: list[str]) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._directory, timeout=120)


@contextmanager
def postgres() -> Iterator[Database | None]:
    """A PostgreSQL; None where it is not installed."""
    programs = find_postgres()
    if programs is None:
        yield None
        return
    directory = Path(tempfile.mkdtemp(prefix="oq-postgres-"))
    database = Database(programs, directory)
    try:
        yield database
    finally:
        database.kill()
        shutil.rmtree(directory)
