"""What pages name is there: files, tests, and words of the demo's output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "explanation"
DESIGN = (PAGES / "architecture.md").read_text().partition("## The design, word by word")[2]
ROWS = re.findall(r"^\| (?!Words|---)(.+?) \| (.+?) \| (.+?) \| (.+?) \|$", DESIGN, re.MULTILINE)


def test_the_design_has_all_its_words() -> None:
    sentence = " ".join(row[0] for row in ROWS)
    for word in ("`glidemq_addFlow`", "Kahn", "`registerParent`", "croniter", "`tryLock`", "sensors", "PySpark"):
        assert word in sentence


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_part_of_the_design_has_its_code_and_tests(row: tuple[str, str, str, str]) -> None:
    for path in re.findall(r"`([^`]+)`", row[1]):
        assert (ROOT / path).exists() or (ROOT / "orchestration_queue" / path).exists(), path
    for path in re.findall(r"`([^`]+)`", row[2]):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize(
    "words", ["was submitted as", "in Kahn's order", "runs next: ", "leads the schedules now", "On Spark: "]
)
def test_the_demo_prints_what_the_page_says(words: str) -> None:
    assert words in DESIGN
    assert any(words in module.read_text() for module in (ROOT / "examples" / "flights").glob("*.py"))


@pytest.mark.parametrize(
    "named", re.findall(r"`(tests/[^`]+)::(\w+)`", (PAGES / "spark-traps.md").read_text()), ids="::".join
)
def test_what_was_found_with_spark_has_a_test(named: tuple[str, str]) -> None:
    path, name = named
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


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


def test_the_tests_of_guarantees_exist() -> None:
    page = (PAGES / "guarantees.md").read_text()
    named = set(re.findall(r"`((?:tests/\w+/)?test_\w+)`", page))
    assert len(named) > 40
    known = {str(path.relative_to(ROOT).with_suffix("")) for path in (ROOT / "tests").rglob("test_*.py")}
    assert named <= known | {path.removeprefix("tests/chaos/") for path in known if path.startswith("tests/chaos/")}
