"""What the README shows is what happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.processes import OQ

README = Path(__file__).parents[2] / "README.md"


def test_the_twenty_lines_of_the_readme_run_as_shown(tmp_path: Path) -> None:
    text = README.read_text()
    (program,) = re.findall(r"```python\n(# pipeline\.py\n.*?)```", text, re.DOTALL)
    assert len(program.strip().splitlines()) <= 24
    (shown,) = re.findall(r"\$ python pipeline\.py\n(.*?)\n", text)
    (tmp_path / "pipeline.py").write_text(program)
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
        assert worker.wait(20) == 0
    assert printed.strip() == shown
    assert (tmp_path / ".oq").is_dir()
