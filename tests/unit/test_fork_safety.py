"""What makes a process unsafe to fork, found in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestration_queue.worker.forks import fork_safety
from orchestration_queue.worker.forks.fork_safety import changed_files, source_files

# Programs import the module alone: importing it in its package imports Dagster, in a second of a core.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fork_safety.__file__).parent)}
PROGRAM = """
import json, os, sys
from fork_safety import find_hazards, open_descriptors
known = open_descriptors()
{code}
print(json.dumps(find_hazards(known)))
"""
NATIVE_THREAD = """
import _thread
lock = _thread.allocate_lock()
lock.acquire()
_thread.start_new_thread(lock.acquire, ())
"""
CONNECTED = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
"""
DATABASE = "import sqlite3; d = sqlite3.connect(sys.argv[1]); d.execute('create table if not exists t (a)')"
LOG = "f = open(sys.argv[1], 'a')"
HANGS_IN_CHILDREN = "import time; os.register_at_fork(after_in_child=lambda: time.sleep(1000))"
BLAS = "import numpy; numpy.ones((600, 600)) @ numpy.ones((600, 600))"


def run(command: list[str]) -> str:
    """Return what a program prints."""
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=100)
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's native threads and descriptors")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import orchestration_queue.dagster.steps", []),
        (NATIVE_THREAD, ["1 thread ("]),
        (CONNECTED, ["a connection to 127.0.0.1:"]),
        (DATABASE, ["the open file "]),
        (LOG, []),
        (HANGS_IN_CHILDREN, []),
        (BLAS, []),
    ],
    ids=["dagster", "thread", "connection", "database", "log", "hook", "blas"],
)
def test_a_process_finds_what_its_forks_would_break(tmp_path: Path, code: str, expected: list[str]) -> None:
    if code is BLAS:
        pytest.importorskip("numpy")
    command = [sys.executable, "-c", PROGRAM.format(code=code), str(tmp_path / "file")]
    found = json.loads(run(command))
    assert len(found) == len(expected), found
    assert all(hazard.startswith(start) for hazard, start in zip(found, expected, strict=True)), found


def test_a_forked_process_draws_its_own_numbers() -> None:
    pytest.importorskip("numpy")
    code = """
import os, sys, numpy
from fork_safety import reseed
for _ in range(3):
    if (pid := os.fork()) == 0:
        reseed()
        print(numpy.random.random(), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""
    command = [sys.executable, "-c", code]
    drawn = run(command).split()
    assert len(set(drawn)) == 3


def test_changed_and_removed_sources_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fork_safety_a", "fork_safety_b"):
        (tmp_path / f"{name}.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("fork_safety_a", "fork_safety_b"):
        monkeypatch.setitem(sys.modules, name, __import__(name))
    sources = source_files()
    first, second = str(tmp_path / "fork_safety_a.py"), str(tmp_path / "fork_safety_b.py")
    assert {first, second} <= set(sources)
    assert not any("/orchestration_queue/dagster/" in path for path in sources)
    assert changed_files(sources) == []
    os.utime(first, ns=(1, 1))
    Path(second).unlink()
    assert changed_files(sources) == [first, second]
