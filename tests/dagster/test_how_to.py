"""The code of docs/how-to/dagster.md is code that loads."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import pytest

pytestmark = pytest.mark.dagster

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "dagster.md"


@dg.op
def nothing() -> None:
    """Do nothing."""


@dg.job
def some_job() -> None:
    """What the page's sensors request."""
    nothing()


def test_the_pages_definitions_load_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OQ_URL", "redis://localhost")
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    defs, sensors = names["defs"], [names["sensor"], names["failures"]]
    assert isinstance(defs, dg.Definitions)
    merged = dg.Definitions.merge(defs, dg.Definitions(jobs=[some_job], sensors=sensors))  # type: ignore[arg-type]
    dg.Definitions.validate_loadable(merged)
