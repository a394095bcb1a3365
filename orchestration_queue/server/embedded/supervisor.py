"""The supervisor of an embedded server: keeps it running while it has users, and no longer.

A separate process that :mod:`orchestration_queue.server.embedded.server` starts by this file's path, in an interpreter
without site-packages, so that it starts within milliseconds: standard library only, nothing of this package. The file
names in the data directory are defined here. docs/decisions/0002-embedded-server.md explains why.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "LOG",
    "PIN",
    "SUPERVISOR_LOCK",
    "USERS_LOCK",
    "ServerSupervisor",
    "Supervisor",
    "detach",
    "die_with",
    "main",
    "same_file",
    "say",
]

USERS_LOCK = "users.lock"
"""Every user holds a shared lock on it; the supervisor exits when it gets the exclusive one."""
SUPERVISOR_LOCK = "supervisor.lock"
"""Held by the supervisor and by its server: the process that gets it may start a supervisor."""
PIN = "stay"
"""While this file exists, the supervisor keeps running without users."""
LOG = "supervisor.log"
"""The log of supervisor and server."""

_TICK_S = 0.2
_SYNC_EVERY_S = 1.0
_QUICK_DEATH_S = 2.0
_MOST_QUICK_DEATHS = 5
_SHUTDOWN_S = 10.0
_PR_SET_PDEATHSIG = 1


class Supervisor:
    """Keeps a service alive in the current directory while it has users. Subclasses define the service.

    Args:
        grace_s: How long to keep running without users.
        supervisor_lock: Descriptor of the locked ``supervisor.lock``. The server inherits it: while either lives, no
            other process opens the same files.
    """

    def __init__(self, grace_s: float, supervisor_lock: int) -> None:
        self.supervisor_lock = supervisor_lock
        self._grace_s = grace_s
        self._users_lock = os.open(USERS_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        self._unused_since: float | None = None
        self._stopping = False
        self._wakeup = _wake_on_signals(self._stop)

    def tend(self) -> bool:
        """Check, several times a second, that the service is running; return False if that is hopeless."""
        raise NotImplementedError

    def end(self) -> None:
        """End the service; called last."""
        raise NotImplementedError

    def run(self) -> int:
        """Run until no user is left; return the exit code."""
        try:
            while not self._stopping and self._is_needed():
                if not self.tend():
                    return 1
                self._sleep(_TICK_S)
        finally:
            self.end()
        return 0

    def _stop(self) -> None:
        self._stopping = True

    def _sleep(self, seconds: float) -> None:
        """Sleep, but wake when the server dies or a stop is requested."""
        if select.select([self._wakeup], [], [], seconds)[0]:
            os.read(self._wakeup, 4096)

    def _is_needed(self) -> bool:
        """Whether a process uses the server, or did a moment ago.

        If this returns False, the exclusive lock is kept, so a new user waits until this process has exited.
        """
        if not same_file(self.supervisor_lock, Path(SUPERVISOR_LOCK)):
            say("the data directory is gone")
            return False
        if Path(PIN).exists():
            self._grace_s = 0.0  # removing the file means: exit with the last user
            return True
        try:
            fcntl.flock(self._users_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unused_since = None
            return True
        now = time.monotonic()
        if self._unused_since is None:
            self._unused_since = now
        if now - self._unused_since >= self._grace_s:
            say("no process uses the server")
            return False
        # Released between two checks: a user that cannot get its shared lock does not connect.
        fcntl.flock(self._users_lock, fcntl.LOCK_UN)
        return True


class ServerSupervisor(Supervisor):
    """Runs one Valkey server in the current directory.

    Args:
        binary: The server's executable.
        socket: The unix socket to serve.
        grace_s: How long to keep running without users.
        supervisor_lock: Descriptor of the locked ``supervisor.lock``.
    """

    def __init__(self, binary: str, socket: str, grace_s: float, supervisor_lock: int) -> None:
        super().__init__(grace_s, supervisor_lock)
        self._binary = binary
        self._socket = socket
        self._server: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._quick_deaths = 0
        self._synced: dict[Path, int] = {}
        self._next_sync = 0.0

    def tend(self) -> bool:
        """Start the server if it is not running, and sync its files."""
        if not self._serve():
            return False
        self._sync_when_due()
        return True

    def _serve(self) -> bool:
        if self._server and (code := self._server.poll()) is not None:
            say(f"the server ended ({f'signal {-code}' if code < 0 else f'exit code {code}'})")
            lived_s = time.monotonic() - self._started
            self._quick_deaths = self._quick_deaths + 1 if lived_s < _QUICK_DEATH_S else 0
            self._server = None
        if self._server is None:
            if self._quick_deaths >= _MOST_QUICK_DEATHS:
                say("giving up: the server keeps ending right after its start; the lines above say why")
                return False
            self._start()
        return True

    def _start(self) -> None:
        settings = {
            # The socket only, which other users cannot open.
            "port": "0",
            "unixsocket": self._socket,
            "unixsocketperm": "700",
            "dir": ".",
            # No snapshots: the append-only file has everything.
            "save": "",
            "appendonly": "yes",
            # With "no", write(2) precedes each reply. With "everysec" it can follow it while a sync is in progress.
            "appendfsync": "no",
            "maxmemory-policy": "noeviction",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._server = subprocess.Popen(
            [self._binary, *words],
            stdin=subprocess.DEVNULL,
            pass_fds=[self.supervisor_lock],
            # Safe, although it runs Python between fork and exec: this process has one thread.
            preexec_fn=die_with(os.getpid()),
        )
        self._started = time.monotonic()
        say(f"server {self._server.pid} started")

    def _sync_when_due(self) -> None:
        """About once a second, have the kernel write the append-only files to the disk."""
        if time.monotonic() < self._next_sync:
            return
        self._next_sync = time.monotonic() + _SYNC_EVERY_S
        for path in Path("appendonlydir").glob("*.aof"):
            # A rewrite of the append-only file replaces its parts, at any moment.
            with contextlib.suppress(FileNotFoundError):
                size = path.stat().st_size
                if self._synced.get(path) != size:
                    _sync(path)
                    self._synced[path] = size

    def end(self) -> None:
        """End the server cleanly: it writes and syncs its append-only file."""
        if self._server is None or self._server.poll() is not None:
            return
        self._server.terminate()
        try:
            self._server.wait(_SHUTDOWN_S)
        except subprocess.TimeoutExpired:
            say("the server does not end by itself; killing it loses nothing")
            self._server.kill()
            self._server.wait()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # macOS has no fdatasync().
        getattr(os, "fdatasync", os.fsync)(descriptor)
    finally:
        os.close(descriptor)


def _wake_on_signals(stop: Callable[[], None]) -> int:
    """Make signals (a child's death, a request to stop) end a wait on the returned descriptor."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    # A signal without a handler does not reach the descriptor, and SIGCHLD has none by default.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # The terminal of the process that started it may be closed.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stop())
    return readable


def die_with(supervisor: int) -> Callable[[], None] | None:
    """Return what the child runs before it becomes the server: have the kernel kill it when the supervisor dies."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # it died before the kernel knew
            os._exit(1)

    return arrange


def same_file(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def say(text: str) -> None:
    """Write a line to the supervisor's log."""
    print(time.strftime("%Y-%m-%d %H:%M:%S"), "supervisor", f"{os.getpid()}:", text, flush=True)  # noqa: T201


def detach(directory: str, supervisor_lock: int) -> bool:
    """Detach from the parent process; return False in the process that must return to it."""
    if os.fork():
        return False
    # The end of a terminal, and its Ctrl-C, must not reach it.
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whatever the starting process had blocked
    # Data and logs are for this user alone.
    os.umask(0o077)
    os.chdir(directory)
    os.set_inheritable(supervisor_lock, False)
    return True


def main(directory: str, binary: str, socket: str, grace_s: str, supervisor_lock: str) -> int:
    """Detach, then supervise."""
    if not detach(directory, int(supervisor_lock)):
        return 0
    return ServerSupervisor(binary, socket, float(grace_s), int(supervisor_lock)).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
