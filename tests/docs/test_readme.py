"""What the README shows is what happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.docs.page import Page
from tests.processes import OQ

README = Page("../README.md")


def test_the_twenty_lines_of_the_readme_run_as_shown(tmp_path: Path) -> None:
    (program,) = README.write_programs(tmp_path).values()
    assert len(program.strip().splitlines()) <= 24
    (shown,) = README.found(r"\$ python pipeline\.py\n(.*?)\n")
    environment = {name: value for name, value in os.environ.items() if name != "OQ_URL"}
    worker = subprocess.Popen(
        [OQ, "worker", "pipeline:tasks", "--queue", "sums"], cwd=tmp_path, env=environment, start_new_session=True
    )
    try:
        printed = subprocess.check_output(
            [sys.executable, "pipeline.py"], cwd=tmp_path, env=environment, text=True, timeout=60
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert printed.strip() == shown
    assert (tmp_path / ".oq").is_dir()
