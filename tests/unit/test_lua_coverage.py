"""Which lines of Lua count as statements: those that tools/lua_coverage.py can put a probe in front of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"

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
