"""The README's three doors do what it says, and its figures are those of the pages that explain them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.dagster.develop import running_dev
from tests.docs.page import Page
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


def test_the_figures_are_those_of_the_page_on_performance() -> None:
    measured = Page("explanation/performance.md").text
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.*?) \| `(.+?)` \|$", SECTIONS["Measured"], re.MULTILINE)
    assert len(rows) == 5
    for what, ours, others, command in rows:
        for figure in re.findall(r"[\d.,]*\d", f"{ours} {others}"):
            assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d.,]*\d)", measured), f"{what}: {figure}"
        assert command in measured or command in Page("explanation/guarantees.md").text


def test_every_link_and_picture_exists() -> None:
    root = README.path.parent
    paths = re.findall(r"\]\(([^)#]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", README.text)
    local = [one or other for one, other in paths if "://" not in (one or other)]
    assert len(local) > 10
    assert [path for path in local if not (root / path).exists()] == []
    for path in local:
        if path.endswith(".png"):
            assert (root / path).stat().st_size < 200_000, path
