"""The code of docs/how-to/isolate-handlers.md does what the page says."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path

from orchestration_queue.client import Queue
from tests.docs.page import Page
from tests.processes import OQ

PAGE = Page("how-to/isolate-handlers.md")


def test_the_handler_of_the_page_runs_as_the_page_starts_it(tmp_path: Path, server_url: str, raw: object) -> None:
    assert list(PAGE.write_programs(tmp_path)) == ["images.py", "thumbnails.py"]
    (command,) = PAGE.found(r"```\noq (worker .*?)\n```")
    worker = subprocess.Popen([OQ, *command.split()], cwd=tmp_path, env={**os.environ, "OQ_URL": server_url})
    try:
        with Queue("images", url=server_url) as queue:
            job = queue.add("resize", {"width": 640})
            assert job.wait(timedelta(seconds=60)) == {"width": 320}
            assert job.logs() == ["resizing"]
    finally:
        worker.terminate()
        assert worker.wait(60) == 0
