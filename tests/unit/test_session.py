"""What a session of tests owes its tests: their order, a report when interrupted, limits of time, a clean process."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.session import DURATIONS, SHARING, longest_first, read_durations, unit_of

TESTS = DURATIONS.parent
ROOT = TESTS.parent
BENCH = TESTS / "bench"

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


def test_files_that_share_a_server_run_in_one_process_and_rank_by_what_they_take_together() -> None:
    page, read, faults, other = (
        f"tests/spark/test_{name}.py" for name in ("datasource_page", "datasource_read", "datasource_faults", "app")
    )
    assert unit_of(page) == unit_of(read) == "classic Spark session"
    assert [unit_of(faults), unit_of(other)] == [faults, other]
    nodeids = [f"{file}::1" for file in (faults, other, page, read)]
    order = longest_first({faults: 60.0, other: 30.0, page: 50.0, read: 50.0}, nodeids)
    assert [nodeids[index] for index in order] == [nodeids[index] for index in (2, 3, 0, 1)]


def test_every_file_that_shares_a_server_exists() -> None:
    assert [pattern for patterns in SHARING.values() for pattern in patterns if not list(ROOT.glob(pattern))] == []


def test_every_measured_file_exists() -> None:
    assert [file for file in read_durations() if not (ROOT / file).exists()] == []


def worked(pid: int) -> tuple[str, str]:
    """How long a process has worked until now."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return user, system


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
        "--verbose",  # says when the controller has received a test's result
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
            until_now = None
            while until_now != (until_now := worked(session.pid)):  # while it holds a lock, the interrupt breaks it
                time.sleep(0.5)
            session.send_signal(signal.SIGINT)
            printed, _ = session.communicate(timeout=60)
        finally:
            session.kill()
    assert "still running:\n  test_hanging.py::test_hangs\n" in printed
    assert session.returncode == 2


WAITING = {"run", "check_output", "check_call", "call"}


def unbounded(source: str) -> Iterator[int]:
    """Yield the line of every call that waits for a process as long as it runs."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            of_subprocess = isinstance(call.func.value, ast.Name) and call.func.value.id == "subprocess"
            waits = (of_subprocess and call.func.attr in WAITING) or call.func.attr in ("communicate", "urlopen")
            if waits and not any(keyword.arg in ("timeout", None) for keyword in call.keywords):
                yield call.lineno


def test_a_call_without_a_limit_is_found() -> None:
    assert list(unbounded("subprocess.run(x)\nsubprocess.run(x, timeout=1)\nprocess.communicate()")) == [1, 3]


@pytest.mark.parametrize("folder", sorted(path.name for path in TESTS.iterdir() if path.is_dir() and path != BENCH))
def test_every_wait_for_a_process_is_bounded(folder: str) -> None:
    files = sorted((TESTS / folder).rglob("*.py"))
    assert [f"{path.relative_to(TESTS)}:{line}" for path in files for line in unbounded(path.read_text())] == []


CHANGES = """
import logging, os, signal, sys
from tests.process_state import ProcessState

BEFORE = ProcessState()

def test_changes_all(tmp_path):
    os.environ["LEFT_BEHIND"] = "x"
    sys.path.insert(0, str(tmp_path))
    os.chdir(tmp_path)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.getLogger().setLevel(logging.DEBUG)
    logging.getLogger().addHandler(logging.NullHandler())
    logging.disable(logging.CRITICAL)

def test_environment_alone_is_restored_within_the_file():
    assert "LEFT_BEHIND" not in os.environ
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
"""

FINDS_NOTHING = """
import os
from dataclasses import replace
from test_a import BEFORE
from tests.process_state import ProcessState

def test_finds_nothing():
    ignored = {"environment": {}, "log_handlers": []}  # pytest changes them for each test
    assert replace(ProcessState(), **ignored) == replace(BEFORE, **ignored)
    assert "LEFT_BEHIND" not in os.environ
"""


def test_what_a_file_changes_does_not_reach_the_next(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(CHANGES)
    (tmp_path / "test_b.py").write_text(FINDS_NOTHING)
    options = ["-p", "tests.process_state", "-p", "no:cacheprovider", "-q", f"--rootdir={tmp_path}"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=100, check=False
    )
    assert ended.stdout.splitlines()[-1].startswith("3 passed"), ended.stdout + ended.stderr
