"""Tests bound every wait for a process that they started."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
BENCH = TESTS / "bench"
WAITING = {"run", "check_output", "check_call", "call"}


def unbounded(source: str) -> Iterator[int]:
    """Yield the line of every call that waits for a process as long as it runs."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            of_subprocess = isinstance(call.func.value, ast.Name) and call.func.value.id == "subprocess"
            waits = (of_subprocess and call.func.attr in WAITING) or call.func.attr in ("communicate", "urlopen")
            if waits and not any(keyword.arg in ("timeout", None) for keyword in call.keywords):
                yield call.lineno


def test_a_call_without_a_limit_is_found() -> None:
    assert list(unbounded("subprocess.run(x)\nsubprocess.run(x, timeout=1)\nprocess.communicate()")) == [1, 3]


@pytest.mark.parametrize("folder", sorted(path.name for path in TESTS.iterdir() if path.is_dir() and path != BENCH))
def test_every_wait_for_a_process_is_bounded(folder: str) -> None:
    files = sorted((TESTS / folder).rglob("*.py"))
    assert [f"{path.relative_to(TESTS)}:{line}" for path in files for line in unbounded(path.read_text())] == []
