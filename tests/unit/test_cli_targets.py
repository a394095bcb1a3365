"""What a command line names is imported from modules and files; errors show the caller's own code only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration_queue.cli.targets import TargetImportError, find_object
from orchestration_queue.errors import UsageError


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; modules imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def find(target: str) -> object:
    return find_object(target, "runs jobs", "pipeline:tasks")


def test_a_module_a_file_and_a_file_of_a_package_are_found(directory: Path) -> None:
    (directory / "oqt_app.py").write_text("tasks = 'of the module'\n")
    package = directory / "elsewhere" / "oqt_pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("word = 'beside'\n")
    (package / "work.py").write_text("from oqt_pkg.other import word\nclass Group:\n    tasks = word\n")
    assert find("oqt_app:tasks") == find("oqt_app.py:tasks") == find(f"{directory}/oqt_app.py:tasks") == "of the module"
    assert find("elsewhere/oqt_pkg/work.py:Group.tasks") == "beside"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("oqt_app", "write module:object or file.py:object, like pipeline:tasks"),
        ("oqt_none:x", "run from its directory, install it, or name its file"),
        ("oqt_none.py:x", "File 'oqt_none.py' does not exist"),
        ("oqt_app:taks", "the closest name is 'tasks'"),
        ("oqt_app:zzz", "check the name after the colon"),
        ("json.py:dumps", "has the same name as the module 'json'"),
    ],
)
def test_what_cannot_be_found_says_what_to_write(directory: Path, target: str, says: str) -> None:
    (directory / "oqt_app.py").write_text("tasks = 1\n")
    (directory / "json.py").write_text("")
    with pytest.raises(UsageError, match=says):
        find(target)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import oqt_missing\n", r"at oqt_bad\.py:1 \(ModuleNotFoundError: No module named 'oqt_missing'\)"),
        ("def f(\n", r"at oqt_bad\.py:1 \(SyntaxError: .*\)"),
        ("x = {}\ny = x.tasks\n", r"at oqt_bad\.py:2 \(AttributeError: .*\)"),
        ("import json\njson.loads('{')\n", r"at oqt_bad\.py:2 \(json\.decoder\.JSONDecodeError: .*\)"),
    ],
)
def test_an_error_on_import_shows_the_callers_frames_only(directory: Path, source: str, says: str) -> None:
    (directory / "oqt_bad.py").write_text(source)
    (directory / "oqt_outer.py").write_text("import oqt_bad\n")
    with pytest.raises(TargetImportError, match=says) as caught:
        find("oqt_outer:tasks")
    shown = [line for line in caught.value.frames.splitlines() if line.startswith("  File ")]
    assert 'oqt_outer.py", line 1' in shown[0]
    assert all(str(directory) in line for line in shown)
