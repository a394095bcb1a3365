"""The tutorial does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.typed_in import type_in

pytestmark = pytest.mark.dagster


@pytest.mark.timeout(300)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    assert type_in("tutorial/first-pipeline.md", tmp_path) == ["oq", "python", "python", "oq", "oq", "oq", "dagster"]
