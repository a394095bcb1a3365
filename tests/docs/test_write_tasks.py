"""What the page on tasks shows is what happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import Page
from tests.processes import OQ

PAGE = Page("how-to/write-tasks.md")


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """The page's programs, written to files; their texts by name."""
    return PAGE.write_programs(tmp_path)


def test_the_programs_of_the_page_print_what_it_shows(tmp_path: Path, programs: dict[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OQ_URL"}
    shown = PAGE.shown()
    assert [name for name, _ in shown] == ["add.py", "add_async.py"]
    command = [OQ, "worker", "reports:tasks", "--queue", "reports", "--concurrency", "4"]
    assert " ".join(["oq", *command[1:]]) in PAGE.text
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        for name, text in shown:
            command = [sys.executable, name]
            assert subprocess.check_output(command, cwd=tmp_path, env=environment, text=True, timeout=60) == text
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def test_the_other_programs_of_the_page_run(tmp_path: Path, programs: dict[str, str]) -> None:
    assert set(programs) == {"reports.py", "add.py", "add_async.py", "test_reports.py", "timing.py"}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], cwd=tmp_path, check=True, timeout=280
    )
    subprocess.run([sys.executable, "timing.py"], cwd=tmp_path, check=True, timeout=280)
