"""The directory of a run goes with its run, or at the latest with the next one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from orchestration_queue.spark.process import scratch_directory


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for temporary files that only this test uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_goes_with_its_run(temporary: Path) -> None:
    with scratch_directory() as directory:
        (directory / "file").touch()
    assert list(temporary.iterdir()) == []


def test_one_in_use_is_left_alone(temporary: Path) -> None:
    with scratch_directory() as first, scratch_directory() as second:
        assert {first, second} == set(temporary.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_run(temporary: Path) -> None:
    program = (
        "import os, tempfile; from orchestration_queue.spark.process import scratch_directory\n"
        f"tempfile.tempdir = {str(temporary)!r}\n"
        "with scratch_directory() as directory: (directory / 'file').touch(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program], timeout=100)
    [left] = temporary.iterdir()
    with scratch_directory() as directory:
        assert list(temporary.iterdir()) == [directory] != [left]
