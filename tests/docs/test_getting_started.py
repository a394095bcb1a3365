"""The pages under Getting started do what they say, each from an empty directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.dagster.develop import running_dev
from tests.docs.page import Page
from tests.docs.walkthrough import own_connect_server, type_in
from tests.processes import OQ


@pytest.mark.dagster
@pytest.mark.timeout(600)
def test_python(tmp_path: Path) -> None:
    page = Page("getting-started/python.md")
    assert type_in(page.text, tmp_path) == ["oq", "python", "python", "oq", "oq", "oq", "dagster"]


@pytest.mark.dagster
@pytest.mark.timeout(600)
def test_dagster(tmp_path: Path) -> None:
    page = Page("getting-started/dagster.md")
    (command,) = re.findall(r"^oq (dagster dev .*)$", page.text, re.MULTILINE)
    before, _, after = page.text.partition(command)
    assert type_in(before, tmp_path) == []
    with running_dev([OQ, *command.split()], tmp_path) as dev:
        told = dev.told(dev.launch("__ASSET_JOB"))
        assert 'Execution of step "report" failed and has requested a retry.' in told
        assert type_in(after, tmp_path) == ["DAGSTER_HOME=$PWD/.oq/dagster", "oq", "oq"]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark(tmp_path: Path) -> None:
    with own_connect_server(tmp_path) as variables:
        page = Page("getting-started/spark.md")
        assert type_in(page.text, tmp_path, variables) == ["oq", "python", "oq", "oq", "oq"]
    assert list((tmp_path / "results").rglob("*.parquet"))
