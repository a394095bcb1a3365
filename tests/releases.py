"""Releases of this package beside the one under test: the one before it, and one with later server libraries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

__all__ = ["PREVIOUS", "ROOT", "Release", "check_out_previous", "make_release", "read_previous"]

ROOT = Path(__file__).parents[1]
PREVIOUS: Final = "1afde5daf0e99a9ad98ce2fef3b60b1794233b4c"
"""The commit of the previous release, 0.2.0; checkouts may lack its tag."""


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


def check_out_previous(folder: Path) -> Release:
    """Unpack the previous release, and make what its build makes. It runs with the packages that are installed here."""
    archive = read_previous("archive", PREVIOUS, "lua", "orchestration_queue", "tools")
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    subprocess.run([sys.executable, str(folder / "tools" / "generate.py")], check=True, timeout=120)
    return Release(folder)


def read_previous(*command: str) -> bytes:
    """Return what Git prints about the previous release; a checkout without it fails the test with one sentence."""
    git = shutil.which("git")
    if git is not None:
        done = subprocess.run([git, *command], cwd=ROOT, capture_output=True, check=False, timeout=60)
        if done.returncode == 0:
            return done.stdout
    pytest.fail(
        f"Upgrades are tested from commit {PREVIOUS} (PREVIOUS in tests/releases.py), which is not in this checkout; "
        "clone the repository with its history, or run `git fetch --unshallow`.",
        pytrace=False,
    )


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
