"""The README's three doors do what it says, and its figures are those of the pages that explain them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
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
GIT = shutil.which("git")
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


@pytest.mark.skipif(not (GIT and (README.path.parent / ".git").exists()), reason="not a checkout")
@pytest.mark.parametrize("page", [README.path, DOCS / "README.md"], ids=["README.md", "docs/README.md"])
def test_every_link_of_pages_that_are_not_on_the_site_leads_to_a_file_in_git(page: Path) -> None:
    root = README.path.parent
    found = re.findall(r"\]\(([^)#]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", page.read_text())
    local = [one or other for one, other in found if "://" not in (one or other)]
    assert len(local) > 10
    tracked = subprocess.check_output([GIT or "", "ls-files"], cwd=root, text=True, timeout=60).splitlines()
    assert [path for path in local if os.path.relpath(page.parent / path, root) not in tracked] == []


def test_the_comparison_has_a_source_for_each_reference() -> None:
    text, _, sources = Page("explanation/comparison.md").text.partition("## Sources")
    listed = re.findall(r"^(\d+)\. .*?https://", sources, re.MULTILINE)
    assert listed == [str(number) for number in range(1, len(listed) + 1)]
    assert set(re.findall(r"\[\[(\d+)\]\]\(#sources\)", text)) == set(listed)


def test_every_picture_is_shown_and_small() -> None:
    root = README.path.parent
    pages = "".join(page.read_text() for page in [*DOCS.rglob("*.md"), README.path, root / "examples" / "README.md"])
    for picture in (DOCS / "assets").glob("*.png"):
        assert f"assets/{picture.name}" in pages, f"{picture.name} is shown nowhere"
        assert picture.stat().st_size < 200_000, picture.name
