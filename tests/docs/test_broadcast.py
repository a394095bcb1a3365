"""What the page on broadcasts shows is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "broadcast.md"


def test_the_program_of_the_page_prints_what_it_shows_and_is_typed(
    tmp_path: Path, server_url: str, raw: object
) -> None:
    (program,) = re.findall(r"```python\n(# broadcasting\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    (shown,) = re.findall(r"```\n(mailer: .*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "broadcasting.py").write_text(program)
    command = [sys.executable, "broadcasting.py"]
    environment = {**os.environ, "OQ_URL": server_url}
    printed = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True, timeout=60)
    assert sorted(printed.splitlines()) == sorted(shown.splitlines())
    settings = ["--strict", "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent"]
    subprocess.run([sys.executable, "-m", "mypy", *settings, "broadcasting.py"], cwd=tmp_path, check=True)
