"""The version is the same wherever it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestration_queue import __version__
from tests.releases import PREVIOUS, read_previous

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "orchestration-queue" / "Chart.yaml"


@pytest.mark.parametrize("name", ["version", "appVersion"])
def test_the_chart_deploys_this_version(name: str) -> None:
    assert re.findall(rf'^{name}: "?([^"\n]+)', CHART.read_text(), re.MULTILINE) == [__version__]


def test_the_changelog_s_latest_version_is_this_one_with_its_date() -> None:
    headings = re.findall(r"^## (.+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", headings[1])


@pytest.mark.parametrize("page", ["Dockerfile", "docs/how-to/deploy-on-kubernetes.md"])
def test_pages_name_the_image_of_this_version(page: str) -> None:
    named = re.findall(r"orchestration-queue:([\d.]+\d)", (ROOT / page).read_text())
    assert named
    assert set(named) == {__version__}


def test_what_is_unreleased_is_tested_against_the_latest_version() -> None:
    """PREVIOUS is written after the release was tagged, so it is the one before until something has changed."""
    unreleased = (ROOT / "CHANGELOG.md").read_text().partition("## [Unreleased]")[2].partition("\n## ")[0]
    source = read_previous("show", f"{PREVIOUS}:orchestration_queue/_version.py").decode()
    assert not unreleased.strip() or f'__version__ = "{__version__}"' in source, "write the tag's commit into PREVIOUS"
