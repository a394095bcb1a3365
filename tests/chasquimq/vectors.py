"""Bytes and timings that the published chasquimq 1.3.0 produced, hex throughout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text("utf-8"))


def labels(cases: list[dict[str, Any]], key: str) -> list[str]:
    """The names of test cases."""
    return [str(case[key]) for case in cases]
