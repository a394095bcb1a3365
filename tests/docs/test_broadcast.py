"""What the page on broadcasts shows is what happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.page import Page

PAGE = Page("how-to/broadcast.md")


def test_the_program_of_the_page_prints_what_it_shows(tmp_path: Path, server_url: str, raw: object) -> None:
    PAGE.write_programs(tmp_path)
    (shown,) = PAGE.found(r"```\n(mailer: .*?)```")
    command = [sys.executable, "broadcasting.py"]
    environment = {**os.environ, "OQ_URL": server_url}
    printed = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True, timeout=60)
    assert sorted(printed.splitlines()) == sorted(shown.splitlines())
