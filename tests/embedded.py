"""What tests of the embedded server share: its users as processes, and what runs (Linux)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

__all__ = ["Directory"]

_USER = Path(__file__).with_name("embedded_user.py")


class Directory:
    """An embedded server's data directory, and the processes around it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"embedded://{path}?grace=0.3"
        self._users: list[subprocess.Popen[str]] = []

    def start_user(self, what: str) -> subprocess.Popen[str]:
        """Start a process that uses the server; see embedded_user.py."""
        command = [sys.executable, str(_USER), self.url, what]
        user = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._users.append(user)
        return user

    def end_users(self) -> None:
        """Kill the users that still run."""
        for user in self._users:
            with user:  # closes the pipes
                user.kill()

    @property
    def supervisors(self) -> list[int]:
        """Process ids of the supervisors. There should be at most one."""
        return sorted(pid for pid, name in self._processes().items() if "valkey" not in name)

    @property
    def servers(self) -> list[int]:
        """Process ids of the servers. There should be at most one."""
        return sorted(pid for pid, name in self._processes().items() if "valkey" in name)

    def _processes(self) -> dict[int, str]:
        """Whatever works in the directory, with its name.

        Thread by thread: a killed process looks dead while its last thread still holds its sockets. A thread gives
        up its files before its working directory.
        """
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            threads: list[Path] = []
            with contextlib.suppress(OSError):  # it has ended meanwhile; likewise below
                threads = list((process / "task").iterdir())
            for thread in threads:
                with contextlib.suppress(OSError):
                    if (thread / "cwd").readlink() == self.path:
                        found[int(process.name)] = (process / "comm").read_text()
        return found
