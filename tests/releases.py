"""Releases of this package beside the one under test: copies of it whose server libraries are others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Release", "make_release"]

ROOT = Path(__file__).parents[1]


class Release:
    """A checkout, and processes that import this package from it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, library: str) -> str:
        """What it loads."""
        return (self.root / "orchestration_queue" / "protocol" / "lua" / f"{library}.lua").read_text()

    def run(self, code: str, url: str, *arguments: str) -> str:
        """Run a program to its end; returns what it printed."""
        command, environment = self._program(code, url, arguments)
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def running(self, code: str, url: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program beside the test; killed in the end if it lives."""
        command, environment = self._program(code, url, arguments)
        process = subprocess.Popen(command, cwd=self.root, env=environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait(60)

    def _program(self, code: str, url: str, arguments: Collection[str]) -> tuple[list[str], dict[str, str]]:
        environment = {**os.environ, "PYTHONPATH": str(self.root), "OQ_URL": url}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile the copy again
        checked = f"import orchestration_queue as package\nassert package.__file__.startswith({str(self.root)!r})\n"
        return [sys.executable, "-c", checked + code, *arguments], environment


def make_release(folder: Path, libraries: Collection[str]) -> Release:
    """Copy this checkout and change one line of the source of each of these libraries, as a later release would."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.jar")
    for name in ("orchestration_queue", "lua", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    for library in libraries:
        source = min((folder / "lua" / library).glob("*.lua"))
        text, changed = re.subn(r"\n\n(?!---)", "\n\nlocal _ = 'changed'\n", source.read_text(), count=1)
        assert changed == 1
        source.write_text(text)
    subprocess.run([sys.executable, str(folder / "tools" / "bundle_lua.py")], check=True, timeout=120)
    return Release(folder)
