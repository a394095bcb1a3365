"""Writes a library of one function that takes a command, a time and words, as qless's script does."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping

from lua_header import Argument, Contract
from lua_library import UNNUMBERED, in_order

__all__ = ["write_commands"]

_REQUIRE = re.compile(r'^local (\w+) = require\("(\w+)"\)\n', re.M)

_PROLOGUE = """#!lua name={library}
-- Generated from lua/{library}/; do not edit. Regenerate with: python tools/bundle_lua.py

local modules = {{}}

local function require(name)
  return modules[name]
end

--- Return the words from a place on.
local function rest(words, first)
  local list = {{}}
  for index = first, #words do
    list[index - first + 1] = words[index]
  end
  return list
end

"""

_CALL = """
local function call(KEYS, ARGV)
  if #KEYS > 0 then
    error("No Keys should be provided")
  end
  local command = commands[ARGV[1] or error("No command given")]
  if not command then
    error("Unknown command " .. ARGV[1])
  end
  local now = tonumber(ARGV[2])
  if not now or now - now ~= 0 then
    error(ARGV[1] .. '(): Arg "now" missing or not a number: ' .. tostring(ARGV[2]))
  end
  return command(now, ARGV)
end

-- Functions; as a script, the text ends here in: return call(KEYS, ARGV)
redis.register_function("{library}", call)

redis.register_function("{library}_version", function()
  return REVISION
end)

--- Run a command for a function of the older form.
local function run(name, now, words, more)
  local all = {{ name, now }}
  for _, word in ipairs(words) do
    all[#all + 1] = word
  end
  for _, word in ipairs(more or {{}}) do
    all[#all + 1] = word
  end
  return commands[name](now, all)
end

-- Refusals are replied, not raised: to what is raised, the server adds its line in this text.
local function register(name, title, keys, words, callback)
  local function call(KEYS, ARGV)
    if #KEYS ~= keys then
      calls.refuse(title, name .. " takes " .. keys .. " keys, got " .. #KEYS)
    elseif words and #ARGV > words then
      calls.refuse(title, name .. " takes at most " .. words .. " arguments, got " .. #ARGV)
    end
    return callback(KEYS, ARGV)
  end
  redis.register_function(name, function(KEYS, ARGV)
    local is_done, reply = pcall(call, KEYS, ARGV)
    if is_done then
      return reply
    end
    return {{ err = type(reply) == "table" and reply.err or "ERR " .. reply:gsub("^user_function:%d+: ", "") }}
  end)
end
"""


def write_commands(library: str, contracts: list[Contract], older: list[Contract], modules: Mapping[str, str]) -> str:
    """Write the library's text, as ``write_library`` does; each of `older` is a function of its own."""
    parts = [_PROLOGUE.format(library=library) + UNNUMBERED]
    parts += [
        f"modules.{name} = (function()\n{modules[name].strip()}\nend)()\n"
        for name in in_order([*contracts, *older], modules, "calls")
    ]
    parts.append('local calls, commands = require("calls"), {}\n')
    parts += [_command(contract) for contract in contracts]
    parts.append(_CALL.strip().format(library=library) + "\n")
    parts += [_function(library, contract) for contract in older]
    return "\n".join(parts)


def _command(contract: Contract) -> str:
    body = contract.body + "\n"
    requires = "".join(f"  {match[0]}" for match in _REQUIRE.finditer(body) if match[1] != "calls")
    words = "\n".join(_words(contract))
    body = textwrap.indent(f"{words}\n" + _REQUIRE.sub("", body).strip("\n"), "    ")
    now = "now" if re.search(r"\bnow\b", body) else "_"
    return f'do\n{requires}  commands["{contract.name}"] = function({now}, ARGV)\n{body}\n  end\nend\n'


def _function(library: str, contract: Contract) -> str:
    body = contract.body + "\n"
    requires = "".join(f"  {match[0]}" for match in _REQUIRE.finditer(body) if match[1] != "calls")
    title = _title(contract)
    keys = [
        f'local {key.name} = calls.name("{title}", "{key.name}", KEYS[{position}])'
        for position, key in enumerate(contract.keys, 1)
    ]
    words = "\n".join([*keys, *_words(contract, first=1)])
    body = textwrap.indent(f"{words}\n" + _REQUIRE.sub("", body).strip("\n"), "    ")
    most = "nil" if any(argument.repeats for argument in contract.arguments) else len(contract.arguments)
    facts = f'"{library}_{contract.name}", "{title}", {len(contract.keys)}, {most}'
    return f"do\n{requires}  register({facts}, function(KEYS, ARGV)\n{body}\n  end)\nend\n"


def _title(contract: Contract) -> str:
    return contract.name[0].upper() + contract.name[1:]


def _words(contract: Contract, first: int = 3) -> Iterator[str]:
    title = _title(contract)
    for position, argument in enumerate(contract.arguments, first):
        if argument.repeats:
            words = f"rest(ARGV, {position})"
            if argument.type == "name":
                words = f'calls.names("{title}", "{argument.name}", {words})'
            yield f"local {argument.name} = {words}"
        else:
            yield f"local {argument.name} = {_value(argument, title, f'ARGV[{position}]')}"


def _value(argument: Argument, title: str, word: str) -> str:
    default = "" if argument.default is None else f" or {argument.default}"
    given = f"{word} and " if argument.maybe else ""
    return f'{given}calls.{argument.type}("{title}", "{argument.name}", {word}{default})'
