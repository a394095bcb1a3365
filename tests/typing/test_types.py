"""What the types of tasks promise, as mypy sees it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mypy import api

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def _errors(*names: str) -> tuple[dict[tuple[str, int], str], str]:
    """The codes of mypy's errors by file and line, and all it said."""
    files = [str(HERE / name) for name in names]
    limit = sys.getrecursionlimit()
    try:
        said, problem, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), "--hide-error-context", *files])
    finally:
        sys.setrecursionlimit(limit)  # mypy raises it, and tests of deeply nested data count on Python's own
    assert not problem, problem
    found = re.findall(r"^(?:.*/)?([\w.]+):(\d+): error: .*\[([\w-]+)\]$", said, re.MULTILINE)
    return {(name, int(line)): code for name, line, code in found}, said


def test_right_uses_are_right_and_each_mistake_is_found_in_its_line() -> None:
    lines = enumerate((HERE / "tasks_wrong.py").read_text().splitlines(), start=1)
    expected = {
        ("tasks_wrong.py", number): mark[1]
        for number, line in lines
        if (mark := re.search(r"# error: ([\w-]+)$", line))
    }
    assert len(expected) >= 15
    found, said = _errors("tasks_right.py", "tasks_wrong.py")
    assert found == expected, said
