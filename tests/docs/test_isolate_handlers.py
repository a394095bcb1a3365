"""The code of docs/how-to/isolate-handlers.md does what the page says."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import timedelta
from pathlib import Path

from orchestration_queue.client import Queue
from tests.processes import OQ

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "isolate-handlers.md"


def test_the_handler_of_the_page_runs_as_the_page_starts_it(tmp_path: Path, server_url: str, raw: object) -> None:
    (module,) = re.findall(r"```python\n(# images\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    (command,) = re.findall(r"```\noq (worker .*?)\n```", PAGE.read_text())
    (tmp_path / "images.py").write_text(module)
    worker = subprocess.Popen([OQ, *command.split()], cwd=tmp_path, env={**os.environ, "OQ_URL": server_url})
    try:
        with Queue("images", url=server_url) as queue:
            job = queue.add("resize", {"width": 640})
            assert job.wait(timedelta(seconds=30)) == {"width": 320}
            assert job.logs() == ["resizing"]
    finally:
        worker.terminate()
        assert worker.wait(15) == 0
