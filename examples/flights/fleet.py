"""The demo's processes: each has its own process group and log, and none is left behind."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DemoError", "Fleet", "find_free_port", "is_free", "take_alone"]

_GRACE_S = 8.0
"""How long a group may take to exit before it is killed."""

_MARK = "FLIGHTS_DEMO_ID"
"""An environment variable that all processes of the demo inherit."""


class DemoError(Exception):
    """Why the demo failed, in one sentence."""


@dataclass(slots=True)
class _Member:
    name: str
    process: subprocess.Popen[bytes]
    log: Path
    expected_to_end: bool = False


class Fleet:
    """Starts processes and stops them all.

    Args:
        logs: Directory of the logs, one file for each process.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._members: dict[str, _Member] = {}
        self._id = uuid.uuid4().hex
        # Our own environment, because the embedded server is a child of the first process that connects.
        os.environ[_MARK] = self._id

    def start(self, name: str, *command: str, expected_to_end: bool = False) -> None:
        """Start a process as the leader of a new group.

        Args:
            name: What the others call it, and its log.
            command: Program and arguments.
            expected_to_end: Whether it may exit on its own, with code 0.
        """
        log = self._logs / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._members[name] = _Member(name, process, log, expected_to_end)

    def check(self) -> None:
        """Look whether all who should live do.

        Raises:
            DemoError: One has ended, or ended badly.
        """
        for member in self._members.values():
            code = member.process.poll()
            if code and member.expected_to_end:
                raise DemoError(f"{member.name} failed with exit code {code}; its last words are in {member.log}.")
            if code is not None and not member.expected_to_end:
                raise DemoError(f"{member.name} ended by itself with exit code {code}; see {member.log}.")

    def has(self, name: str) -> bool:
        """Whether a process of that name was started, and not killed."""
        return name in self._members

    def pid(self, name: str) -> int:
        """Return that process's id."""
        return self._members[name].process.pid

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one process. After SIGKILL its end is no surprise, and its group goes with it."""
        member = self._members[name]
        os.kill(member.process.pid, number)
        if number is signal.SIGKILL:
            member.process.wait()
            _end_group(member.process.pid, signal.SIGKILL)
            del self._members[name]

    def stop(self) -> None:
        """Ask every group to leave, then make it leave."""
        groups = [member.process.pid for member in self._members.values()]
        for group in groups:
            _end_group(group, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        for member in self._members.values():
            with suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0.1, deadline - time.monotonic()))
        for group in groups:
            _end_group(group, signal.SIGKILL)
        for member in self._members.values():
            member.process.wait()
        self._members.clear()

    def left_behind(self) -> list[int]:
        """Ids of processes of this demo that still live, wherever they descend from (Linux; elsewhere none)."""
        mark = f"{_MARK}={self._id}".encode()
        found = []
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended meanwhile, or is not ours
                if mark in environment.read_bytes().split(b"\0"):
                    found.append(int(environment.parent.name))
        return [process for process in found if process != os.getpid()]

    def sweep(self) -> None:
        """Wait for the servers, which leave after their last clients.

        A process that has not left soon is asked to: a code server of Dagster's whose daemon had to be killed
        stays for a while. One that does not leave then is killed and reported.

        Raises:
            DemoError: Processes had to be killed.
        """
        for seconds, number in ((5, signal.SIGTERM), (60, signal.SIGKILL)):
            deadline = time.monotonic() + seconds
            while left := self.left_behind():
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
        if left:
            raise DemoError(f"The processes {left} were left behind and had to be killed.")


@contextmanager
def take_alone(directory: Path) -> Iterator[None]:
    """Keep other demos out of a directory.

    Raises:
        DemoError: Another demo runs in it.
    """
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"Another demo is running in {directory}; wait for its end, or pass another --directory."
            ) from None
        yield


def is_free(port: int) -> bool:
    """Whether no server listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def find_free_port(wanted: int) -> int:
    """Return the wanted port if it is free, or else another."""
    if is_free(wanted):
        return wanted
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
        os.killpg(group, number)
