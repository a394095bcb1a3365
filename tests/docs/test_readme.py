"""The README's three doors do what it says, and its figures are those of the pages that explain them."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.dagster.develop import running_dev
from tests.docs.page import DOCS, Page
from tests.docs.walkthrough import own_connect_server, type_in
from tests.processes import OQ

README = Page("../README.md")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", README.text, re.DOTALL | re.MULTILINE))


def lines_of_code(section: str) -> int:
    """Count the lines of a section's program, without its name and empty lines."""
    (program,) = re.findall(r"```python\n# \w+\.py\n(.*?)```", SECTIONS[section], re.DOTALL)
    return len([line for line in program.splitlines() if line])


def test_plain_python(tmp_path: Path) -> None:
    assert lines_of_code("Plain Python") <= 12
    assert type_in(SECTIONS["Plain Python"], tmp_path) == ["oq", "python"]
    assert (tmp_path / ".oq").is_dir()


@pytest.mark.dagster
@pytest.mark.timeout(600)
def test_dagster(tmp_path: Path) -> None:
    assert lines_of_code("Dagster") <= 12
    assert type_in(SECTIONS["Dagster"], tmp_path) == []
    (command,) = re.findall(r"^oq (dagster dev .*?) +#", SECTIONS["Dagster"], re.MULTILINE)
    with running_dev([OQ, *command.split()], tmp_path) as dev:
        run_id = dev.launch("__ASSET_JOB")
        assert f"Step 'revenue' waits as job 'dagster.{run_id}.revenue.1' on queue 'dagster'." in dev.told(run_id)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark(tmp_path: Path) -> None:
    assert lines_of_code("Spark") <= 12
    with own_connect_server(tmp_path) as variables:
        assert type_in(SECTIONS["Spark"], tmp_path, variables) == ["oq", "python"]


def test_the_figures_are_those_of_the_pages_that_explain_them() -> None:
    measured = Page("explanation/performance.md").text + Page("explanation/guarantees.md").text
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.*?) \| `(.+?)` \|$", SECTIONS["Measured"], re.MULTILINE)
    assert len(rows) == 5
    for what, ours, others, command in rows:
        for figure in figures_in(f"{what} {ours} {others}"):
            assert figure in figures_in(measured), f"{what}: {figure}"
        assert command in measured


def test_the_front_page_shows_figures_of_the_readme() -> None:
    tiles = Page("index.md").found(r"<div class=\"figures\" markdown>(.*?)</div>")
    assert len(figures_in(*tiles)) > 5
    assert figures_in(*tiles) <= figures_in(SECTIONS["Measured"])


def figures_in(text: str) -> set[str]:
    """Return the numbers in a text."""
    return set(re.findall(r"(?<![\w.,])\d[\d.,]*(?<=\d)", text))


def test_the_front_page_shows_the_programs_of_the_readme() -> None:
    sys.path.append(str(README.path.parent / "tools"))
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    shown = import_module("site_home").on_page_markdown(Page("index.md").text, page)
    for door in ("Dagster", "Spark", "Plain Python"):
        (program,) = re.findall(r"```python\n(.*?)```", SECTIONS[door], re.DOTALL)
        assert all(f"    {line}\n" in shown for line in program.splitlines() if line)
    assert "<!--" not in shown


def test_the_site_and_the_console_share_a_mark() -> None:
    console = README.path.parent / "orchestration_queue" / "http" / "console" / "static" / "icon.svg"
    assert (DOCS / "assets" / "mark.svg").read_text() == console.read_text()


def test_every_link_and_picture_exists() -> None:
    root = README.path.parent
    paths = re.findall(r"\]\(([^)#]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", README.text)
    local = [one or other for one, other in paths if "://" not in (one or other)]
    assert len(local) > 10
    assert [path for path in local if not (root / path).exists()] == []


def test_every_picture_is_shown_and_small() -> None:
    root = README.path.parent
    pages = "".join(page.read_text() for page in [*DOCS.rglob("*.md"), README.path, root / "examples" / "README.md"])
    for picture in (DOCS / "assets").glob("*.png"):
        assert f"assets/{picture.name}" in pages, f"{picture.name} is shown nowhere"
        assert picture.stat().st_size < 200_000, picture.name
