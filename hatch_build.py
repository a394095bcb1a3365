"""Makes what is in the package but not in Git before hatchling packs or links it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


class GeneratedFiles(BuildHookInterface[Any]):
    """Hatch calls it for wheels, source archives and editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  the interface of hatchling
        """Write the files that are missing or stale."""
        subprocess.run([sys.executable, str(ROOT / "tools" / "generate.py")], check=True)
