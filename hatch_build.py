"""Adds what is in the package but not in Git, before hatchling packs or links it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
RECORD = "commit.txt"
"""At the top of a source archive, and in the package of a wheel."""


class GeneratedFiles(BuildHookInterface[Any]):
    """Hatch calls it for wheels, source archives and editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files that are missing or stale; record the commit in an archive, where it can no longer change."""
        subprocess.run([sys.executable, str(ROOT / "tools" / "generate.py")], check=True)
        self._directory = tempfile.mkdtemp()
        if version != "editable" and (commit := _commit()):
            record = Path(self._directory, RECORD)
            record.write_text(f"{commit}\n")
            place = RECORD if self.target_name == "sdist" else f"orchestration_queue/{RECORD}"
            build_data["force_include"][str(record)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  hatch's
        """Remove the record, which is packed by now."""
        shutil.rmtree(self._directory)


def _commit() -> str:
    """Return the commit, with `-dirty` if files differ from it, or the record of a source archive; empty if unknown."""
    if (ROOT / RECORD).exists():
        return (ROOT / RECORD).read_text().strip()
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        return ""
    command = [git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
