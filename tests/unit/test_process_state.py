"""What tests/process_state.py undoes between two test files of one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

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
