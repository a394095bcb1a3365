"""The living specification runs on the embedded server, as a newcomer's first program does."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An embedded server of this test's own."""
    return f"embedded://{tmp_path / 'oq'}"
