"""What the page on step jobs shows is what happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.processes import OQ

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "step-jobs.md"


def test_the_programs_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    page = PAGE.read_text()
    programs = re.findall(r"```python\n(# (\w+\.py)\n.*?)```", page, re.DOTALL)
    assert [name for _, name in programs] == ["orders.py", "add.py"]
    for text, name in programs:
        (tmp_path / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "OQ_URL"}
    (shown,) = re.findall(r"\$ python add\.py\n(.*?)```", page, re.DOTALL)
    command = [OQ, "worker", "orders:tasks", "--queue", "orders"]
    assert " ".join(["oq", *command[1:]]) in page
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        printed = subprocess.check_output(
            [sys.executable, "add.py"], cwd=tmp_path, env=environment, text=True, timeout=60
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    assert printed == shown
    settings = ["--strict", "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent"]
    names = [name for _, name in programs]
    subprocess.run([sys.executable, "-m", "mypy", *settings, *names], cwd=tmp_path, check=True)
