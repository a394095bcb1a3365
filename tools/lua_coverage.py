"""Builds the function libraries so that they tell which lines ran: ``python tools/lua_coverage.py FOLDER``.

A probe in front of each statement of lua/ marks it in a local table: no key is written, and a call that ends in an
error has marked what it reached. The libraries in FOLDER register one function more, ``coverage_<library>``. It replies
two lists and forgets them: the statements that ran while the library was loaded, and those that calls ran since. A
number stands for the file and line at that place of FOLDER/statements.json, counted from 1.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from bundle_lua import LIBRARIES, PROTOCOL, ROOT, outputs
from lupa.lua51 import LuaRuntime

_NO_STATEMENT = re.compile(r"\s*(--|(end|else|elseif|until)\b|$)")
_REQUIRE = re.compile(r"local \w+ = require\(")
"""The bundler takes these lines away, and wants them as they are."""

_UNMEASURED = {"qless"}
"""Libraries that tests/lua does not load: tests of their clients run them."""

_REPORT = """
local while_loading = __ran
__ran = {{}}

local function numbers(set)
  local list = {{}}
  for number in pairs(set) do
    list[#list + 1] = number
  end
  return list
end

redis.register_function("coverage_{library}", function()
  local report = {{ numbers(while_loading), numbers(__ran) }}
  while_loading, __ran = {{}}, {{}}
  return report
end)
"""


def statement_lines(source: str) -> list[int]:
    """Return the lines that begin a statement, counted from 1: where Lua accepts a block, but not half of one.

    The second half of the question tells code from the inside of a long string or comment. The condition of an `elseif`
    is no statement of its own, nor is what continues one on the next line.
    """
    lines = source.splitlines()
    compiles = LuaRuntime().eval("function(text) return loadstring(text) ~= nil end")

    def takes(index: int, words: str) -> bool:
        return bool(compiles("\n".join([*lines[:index], words + lines[index], *lines[index + 1 :]])))

    return [
        index + 1
        for index, line in enumerate(lines)
        if not (_NO_STATEMENT.match(line) or _REQUIRE.match(line))
        and takes(index, "do end ")
        and not takes(index, "do ")
    ]


def probe(sources: Path) -> list[tuple[str, int]]:
    """Put a probe in front of each statement below a folder; returns the file and line of each."""
    statements: list[tuple[str, int]] = []
    for path in sorted(sources.rglob("*.lua")):
        lines = path.read_text().splitlines()
        for number in statement_lines(path.read_text()):
            statements.append((f"lua/{path.relative_to(sources)}", number))
            lines[number - 1] = f"do __ran[{len(statements)}] = true end {lines[number - 1]}"
        path.write_text("\n".join(lines) + "\n")
    return statements


def main(folder: Path) -> None:
    """Write the libraries and the list of their statements."""
    sources = folder / "lua"
    shutil.copytree(ROOT / "lua", sources, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_UNMEASURED))
    statements = probe(sources)
    texts, _ = outputs(folder, is_revised=False)
    for library in LIBRARIES.keys() - _UNMEASURED:
        head, rest = texts[PROTOCOL / "lua" / f"{library}.lua"].split("\n", 1)
        text = f"{head}\nlocal __ran = {{}}\n{rest}{_REPORT.format(library=library)}"
        (folder / f"{library}.lua").write_text(text)
    (folder / "statements.json").write_text(json.dumps(statements))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
