"""Spark Connect servers: one that workers start on demand and share, or an existing one."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from orchestration_queue.errors import (
    InvalidOptionError,
    SparkCancelledError,
    SparkFailedError,
    SparkTimeoutError,
    UsageError,
)
from orchestration_queue.options.durations import Duration, check_duration
from orchestration_queue.server.embedded.server import SupervisorClient, is_private, supervisor_log
from orchestration_queue.spark.connect import address
from orchestration_queue.spark.connect.address import (
    JOBS,
    LOG,
    RUNS,
    SERVER_LOCK,
    ServerState,
    read_state,
    write_state,
)
from orchestration_queue.spark.java import java_home
from orchestration_queue.spark.options import SparkOptions

__all__ = ["ConnectServer", "SessionLease"]

_LOOK_S = 0.05
_UNREACHABLE = re.compile(r"Failed to connect|Connection refused|UnknownHost|masters are unresponsive|No route to host")


@dataclass(frozen=True, slots=True)
class SessionLease:
    """A run's right to a session on a server.

    Attributes:
        url: The server's address.
        place: The server's name without secrets, by which a later attempt finds it.
        is_alive: Whether its process runs; true if that is unknown.
        release: Returns the lease.
        log: The server's log, if it can be read.
        takes_artifacts: Whether files that a session adds are visible to that session only.
    """

    url: str
    place: str
    is_alive: Callable[[], bool]
    release: Callable[[], None]
    log: Path | None = None
    takes_artifacts: bool = True


class ConnectServer:
    """A Spark Connect server for the jobs of all workers that name an equal one.

    Without an address, it is a server on this machine: started by its first job, shared by all processes of one user
    that request an equal one, listening on loopback with a secret, restarted if it is killed, and stopped soon after
    its last user. docs/decisions/0010-spark-connect-servers.md describes the design.

    Args:
        options: Its master, memory, properties, environment, Python and Java; default: ``local[*]`` with 1 GiB. Java
            optimizes for long runs, unless they set ``quick_start=True``.
        url: The address of an existing server, ``sc://host:15002``; nothing is started then.
        max_jobs: Replace it after this many jobs, each of which leaves some memory behind; None never does.
        max_memory_gib: Replace it when it uses more GiB of memory; None never does.
        linger: How long it keeps running without users.
        start_timeout: How long a job waits for its start.

    Raises:
        InvalidOptionError: The address is invalid, or a limit is not positive.
    """

    def __init__(
        self,
        options: SparkOptions | None = None,
        *,
        url: str | None = None,
        max_jobs: int | None = 1_000,
        max_memory_gib: float | None = None,
        linger: Duration = timedelta(seconds=30),
        start_timeout: Duration = timedelta(minutes=2),
    ) -> None:
        for name, limit in (("max_jobs", max_jobs), ("max_memory_gib", max_memory_gib)):
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
                raise InvalidOptionError(f"`{name}` must be a number, got {limit!r}; pass `{name}=100`, or None.")
            if limit is not None and limit <= 0:
                raise InvalidOptionError(f"`{name}` must be > 0, got {limit!r}; pass `{name}=100`, or None.")
        if url is not None and options is not None:
            raise InvalidOptionError(
                "`options` configure a server to start, but `url` names an existing one; pass either of them."
            )
        self.url = None if url is None else address.check_address(url)
        self.options = SparkOptions.coerce(options, "options")
        if "quick_start" not in self.options.model_fields_set:  # a server runs long, so Java optimizes
            self.options = self.options.model_copy(update={"quick_start": False})
        self._limits = {
            "max_jobs": max_jobs,
            "max_memory": None if max_memory_gib is None else int(max_memory_gib * (1 << 30)),
        }
        self._linger = check_duration(linger, "linger")
        self._start_timeout = check_duration(start_timeout, "start_timeout")
        if not self._start_timeout:
            raise InvalidOptionError("`start_timeout` must be > 0, got 0; pass `start_timeout=60`.")

    def start(self) -> None:
        """Start it without waiting, so that it warms up before the first job.

        Raises:
            UsageError: PySpark is not installed, or the server's directory can't be used.
            JavaNotFoundError: No suitable Java was found.
        """
        if self.url is None:
            with contextlib.suppress(ConnectionRefusedError):
                self._join()

    def close(self) -> None:
        """Stop using it. Without this, a process uses it until it ends."""
        if "_supervisor" in self.__dict__:
            self._supervisor.leave()

    def lease_session(self, run: str, should_stop: Callable[[], bool] = lambda: False) -> SessionLease:
        """Reserve a session on the server for one run; wait for the server's start if needed.

        Args:
            run: The run's id.
            should_stop: Called while waiting; stops waiting when it returns true.

        Raises:
            SparkFailedError: The server does not start.
            SparkTimeoutError: It takes longer than ``start_timeout``.
            SparkCancelledError: ``should_stop`` returned true.
            UsageError: PySpark is not installed, or the server's directory can't be used.
        """
        if self.url is not None:
            return SessionLease(self.url, address.place(self.url), lambda: True, lambda: None)
        deadline = time.monotonic() + self._start_timeout.total_seconds()
        while True:
            # The supervisor is exiting with its server, which may still answer; or the server was just replaced.
            with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
                self._join()
                if (state := read_state(self.directory)) is not None:
                    if state.problem:
                        raise SparkFailedError(
                            f"The Spark Connect server did not start: {state.problem}; correct its options."
                        )
                    return self._on(state, run)
            if should_stop():
                raise SparkCancelledError("The job was asked to stop while it waited for the Spark Connect server.")
            if time.monotonic() > deadline:
                hint = _startup_hint(self.directory)
                raise SparkTimeoutError(
                    f"The Spark Connect server did not start within {self._start_timeout}{hint}; check the logs in "
                    f"{self.directory}, or raise ConnectServer(start_timeout=...)."
                )
            time.sleep(_LOOK_S)

    def url_of(self, place: str) -> str | None:
        """Return the address of the server that had an earlier run, if it may still be running."""
        if self.url is not None:
            return self.url if address.place(self.url) == place else None
        state = read_state(self.directory)
        return state.url if state and state.process and self._place(state) == place else None

    def _on(self, state: ServerState, run: str) -> SessionLease:
        """Register a run. Its file is locked before it gets its name, or the supervisor would consider the run dead."""
        process = self.directory / state.process
        draft, final = process / f"run-{secrets.token_hex(4)}", process / RUNS / run
        lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            draft.rename(final)
            with (process / JOBS).open("ab") as jobs:
                jobs.write(b".")
        except BaseException:
            draft.unlink(missing_ok=True)
            os.close(lock)
            raise

        def release() -> None:
            final.unlink(missing_ok=True)
            os.close(lock)

        is_alive = partial(_is_held, process / SERVER_LOCK)
        return SessionLease(
            state.url, self._place(state), is_alive, release, process / LOG, takes_artifacts=self.options.is_isolated
        )

    def _place(self, state: ServerState) -> str:
        return f"local:{self.directory.name}/{state.process}"

    def _join(self) -> None:
        try:
            self._supervisor.join()
        except ConnectionRefusedError:
            raise
        except (OSError, subprocess.CalledProcessError) as error:
            raise UsageError(
                f"The Spark Connect server cannot use its directory {str(self.directory)!r} ({error}); "
                "set TMPDIR to a writable directory."
            ) from None

    @cached_property
    def _supervisor(self) -> SupervisorClient:
        return SupervisorClient(self.directory, partial(_start_supervisor, self.directory, self._request))

    @cached_property
    def _request(self) -> dict[str, Any]:
        options = self.options.model_copy(update={"java_home": self.options.java_home or java_home()})
        return {
            "options": options.model_dump(mode="json"),
            "grace_s": self._linger.total_seconds(),
            **self._limits,
        }

    @cached_property
    def directory(self) -> Path:
        """The directory of a server with these options; equal ones share it."""
        try:
            installed = version("pyspark")
        except PackageNotFoundError:
            raise UsageError(
                "Spark work needs PySpark, which is not installed; run `pip install 'orchestration-queue[spark]'`."
            ) from None
        identity = json.dumps([self._request, installed, sys.executable, _importable()], sort_keys=True)
        shelf = Path(tempfile.gettempdir()).resolve() / f"oq-connect-{os.getuid()}"
        shelf.mkdir(mode=0o700, exist_ok=True)
        if not is_private(shelf):
            raise UsageError(
                f"{str(shelf)!r}, the directory of Spark Connect servers, belongs to another user or is accessible to "
                "others; correct its owner and mode, or set TMPDIR."
            )
        return shelf / hashlib.sha256(identity.encode()).hexdigest()[:16]


def _importable() -> str:
    """Return the import path that processes of one server must share; another path needs another server."""
    places = dict.fromkeys(Path(entry).absolute() for entry in sys.path)
    # Ignore the directory of commands, which has no modules: `oq worker` and `python program.py` share a server.
    commands = Path(sys.executable).parent
    return os.pathsep.join(str(place) for place in places if place.exists() and place != commands)


def _start_supervisor(directory: Path, request: dict[str, Any], lock: int) -> None:
    # The state of a supervisor that was killed would lead to a server that is gone.
    write_state(directory, None)
    with supervisor_log(directory) as log:
        subprocess.run(
            [sys.executable, "-P", "-m", "orchestration_queue.spark.connect.supervisor", str(directory), str(lock)],
            input=json.dumps(request).encode(),
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": _importable()},
            pass_fds=[lock],
            check=True,
        )


def _startup_hint(directory: Path) -> str:
    """Return what the newest server's log says about an unreachable cluster; empty without such a line."""
    logs = sorted(directory.glob(f"*/{LOG}"), key=lambda log: log.stat().st_mtime)
    lines = logs[-1].read_text("utf-8", "replace").splitlines() if logs else []
    said = next((line for line in reversed(lines) if _UNREACHABLE.search(line)), None)
    return f" (its log says: {said.strip()[:300]})" if said else ""


def _is_held(lock: Path) -> bool:
    """Return whether a lock's owner is alive."""
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
