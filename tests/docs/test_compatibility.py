"""The page of tested versions says what pyproject.toml declares: each lower bound was tried, and is not below that."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

from compat import direct_dependencies  # noqa: E402

ROW = re.compile(r"^\| (\S+) \| `(\S+)` \| (\S+) \| (\S+) \|$", re.MULTILINE)


def test_each_lower_bound_was_tried() -> None:
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    rows = {name: (declared, lowest, newest) for name, declared, lowest, newest in ROW.findall(page)}
    assert {name: declared for name, (declared, _, _) in rows.items()} == direct_dependencies()
    for name, (declared, lowest, newest) in rows.items():
        bound = next(Version(each.version) for each in SpecifierSet(declared) if each.operator == ">=")
        assert Version(lowest) in SpecifierSet(declared), name
        assert Version(newest) in SpecifierSet(declared), name
        assert Version(lowest).release[: len(bound.release)] == bound.release, name


def test_each_declared_python_was_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r":: 3\.\d+$", text)}
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    assert set(re.findall(r"^\| \S+ \| (3\.\d+) \|", page, re.MULTILINE)) == declared
