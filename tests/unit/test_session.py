"""What tests/session.py does for a session: its order, and the report of an interrupted one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.session import DURATIONS, longest_first, read_durations

ROOT = DURATIONS.parents[1]

HANGING = """
import threading

def test_hangs():
    threading.Event().wait(60)

def test_waits_behind_it():
    pass
"""


def test_the_longest_file_comes_first_and_those_of_lua_last() -> None:
    nodeids = ["tests/a.py::1", "tests/a.py::2", "tests/lua/l.py::1", "tests/b.py::1", "tests/new.py::1"]
    order = longest_first({"tests/a.py": 1.0, "tests/b.py": 90.0, "tests/lua/l.py": 99.0}, nodeids)
    assert [nodeids[index] for index in order] == [nodeids[index] for index in (3, 4, 0, 1, 2)]


def test_every_measured_file_exists() -> None:
    assert [file for file in read_durations() if not (ROOT / file).exists()] == []


def test_an_interrupted_session_names_the_tests_that_still_run(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    words = [
        "-p",
        "tests.session",
        "-p",
        "no:asyncio",
        "-p",
        "no:cacheprovider",
        "--numprocesses=1",
        "--verbose",  # says when the controller has heard of a test
        f"--rootdir={tmp_path}",
    ]
    command = [sys.executable, "-m", "pytest", *words, str(tmp_path)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as session:
        try:
            assert session.stdout
            started = ""
            while "::test_hangs" not in started:
                some = os.read(session.stdout.fileno(), 4096)
                assert some, started
                started += some.decode()
            session.send_signal(signal.SIGINT)
            printed, _ = session.communicate(timeout=60)
        finally:
            session.kill()
    assert "still running:\n  test_hanging.py::test_hangs\n" in printed
    assert session.returncode == 2
