"""Tools: what lines the coverage of Lua counts, which changes `make mutants` makes, which wording is refused."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.append(str(TOOLS))
check_voice, mutants = import_module("check_voice"), import_module("mutants")

# What is marked with an arrow is a statement.
SOURCE = """\
--- The head.
local many = require("many")

local limits = {                   -- >
  first = 1,
  last = 2,
}
local text = [[                    -- >
return 1
]]
--[[
return 2
]]
function limits.check(word, ...)   -- >
  if word == "a"                   -- >
    or word == "b" then
    return many.call(              -- >
      word,
      ...
    )
  elseif word then
    for index = 1, 2 do            -- >
      word = word .. index         -- >
    end
  else
    repeat                         -- >
      word = text                  -- >
        .. "c"
    until word
  end
  many.each(function(other)        -- >
    return other                   -- >
  end)
end
return limits                      -- >
"""


def test_a_statement_counts_at_the_line_that_begins_it() -> None:
    program = "import json, sys, lua_coverage; print(json.dumps(lua_coverage.statement_lines(sys.stdin.read())))"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, input=SOURCE, capture_output=True, text=True, check=True, cwd=TOOLS, timeout=100)
    arrows = [number for number, line in enumerate(SOURCE.splitlines(), 1) if line.endswith("-- >")]
    assert json.loads(result.stdout) == arrows


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


def test_changes_that_no_test_can_catch_are_still_made() -> None:
    for change in mutants.EQUIVALENT:
        path = mutants.PACKAGE / change.partition(": ")[0]
        assert any(mutant.is_equivalent and change.endswith(mutant.after) for mutant in mutants.mutants_of(path)), (
            change
        )


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.py", '"""Somebody waits."""\n', [1]),
        ("a.py", 'x = 1\n# This is\n# to be mended\ny = f"there is {x} and nobody"\n', [3, 4]),
        ("a.py", "somebody = None\nfor ever in (1,): print(somebody is None, ever)\n", []),
        ("a.py", "lock_duration = 3\n", [1]),
        ("a.md", "It runs at even distances,\nby the clock of a place.\nThe server hangs up.\n", [1, 2, 3]),
        ("a.lua", "local nobody = 1 -- who shall wait\n", [1]),
        (
            "a.md",
            "The key stands here.\n\n```python\nnobody = 1\n```\n\n`nobody` is a name, and anew\nis none.\n",
            [1, 7, 8],
        ),
        ("a.md", "This stands for that, and X is None.\n", []),
        ("a.md", "A trip here,\na round trip there; it goes on,\nthat is not so any more.\n", [1, 2, 3]),
    ],
)
def test_banned_phrases_are_found_in_prose_only(tmp_path: Path, name: str, text: str, lines: list[int]) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = [int(message.split(":")[1]) for message in check_voice.check(path)]
    assert found == lines
