"""What the page on step jobs shows is what happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.docs.page import Page
from tests.processes import OQ

PAGE = Page("how-to/step-jobs.md")


def test_the_programs_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    programs = PAGE.write_programs(tmp_path)
    assert list(programs) == ["orders.py", "add.py"]
    environment = {name: value for name, value in os.environ.items() if name != "OQ_URL"}
    (shown,) = PAGE.found(r"\$ python add\.py\n(.*?)```")
    command = [OQ, "worker", "orders:tasks", "--queue", "orders"]
    assert " ".join(["oq", *command[1:]]) in PAGE.text
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        printed = subprocess.check_output(
            [sys.executable, "add.py"], cwd=tmp_path, env=environment, text=True, timeout=60
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert printed == shown
