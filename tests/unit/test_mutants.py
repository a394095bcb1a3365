"""tools/mutants.py: which changes it makes."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

TOOLS = str(Path(__file__).parents[2] / "tools")
sys.path.insert(0, TOOLS)
mutants = import_module("mutants")
sys.path.remove(TOOLS)


def test_each_operator_is_changed_once_and_put_back() -> None:
    tree = ast.parse("def f(a, b):\n    return not a or a < b + 1\n")
    before = ast.unparse(tree)
    found = [(line, after) for line, _, after in mutants.changes(tree)]
    assert found == [
        (2, "not a and a < b + 1"),
        (2, "not not a"),
        (2, "a <= b + 1"),
        (2, "b - 1"),
    ]
    assert ast.unparse(tree) == before
