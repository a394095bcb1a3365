"""Tables of the pages that name a test for each line: the test exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows(page: str, header: str) -> list[list[str]]:
    """Return the cells of a table's rows."""
    table = (ROOT / "docs" / page).read_text().partition(header)[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]


TRAPS = rows("explanation/dagster-traps.md", "| Met | Now | Test |")
LIMITS = rows("how-to/from-queued-run-coordinator.md", "| In Dagster's words |")


def test_the_tables_are_there() -> None:
    assert len(TRAPS) > 30
    assert len(LIMITS) >= 15


@pytest.mark.parametrize("row", [*TRAPS, *LIMITS], ids=lambda row: str(row[0])[:40])
def test_the_test_of_a_row_exists(row: list[str]) -> None:
    named = re.findall(r"`([\w./]+)::(\w+)`", row[-1])
    assert named
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests/dagster" / file).read_text()
