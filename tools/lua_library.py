"""Writes one function library: modules wrapped as functions, then each server function behind its unpacked words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lua_header import Argument, Contract, HeaderError, Key, Repeated

__all__ = ["UNNUMBERED", "in_order", "number_text", "write_library"]

_WIRE = "glidemq"
"""The library whose callers send what they have always sent. Callers of any other send every word."""

UNNUMBERED = 'local REVISION = ""\n'
"""How a text says its number, before it has one."""

_REQUIRE = re.compile(r'^local (\w+) = require\("(\w+)"\)\n', re.M)


def number_text(text: str, number: int) -> str:
    """Put a library's number into its text."""
    head, _, tail = text.partition(UNNUMBERED)
    return f'{head}local REVISION = "{number}"\n{tail}'


def write_library(library: str, prefix: str, contracts: list[Contract], modules: Mapping[str, str]) -> str:
    """Write the library's text, ready for ``FUNCTION LOAD`` except for its number.

    Raises:
        HeaderError: A function does not use an argument it declares, or a module is missing.
    """
    wanted = in_order(contracts, modules)
    checks = _LENIENT if library == _WIRE else _STRICT
    parts = [checks.format(prefix=prefix)]
    parts.extend(f"modules.{name} = (function()\n{modules[name].strip()}\nend)()\n" for name in wanted)
    parts.extend(_function(contract, prefix, strict=library != _WIRE) for contract in contracts)
    return _PROLOGUE.format(library=library) + UNNUMBERED + _with_locals("\n".join(parts))


def _with_locals(text: str) -> str:
    """Reach what functions use of the server and of Lua through locals, which are looked up once.

    A global takes two or three lookups each time: first in the library's own table, then in the server's. A library has
    none of them while it loads: the first call of a function looks them up.
    """
    used = sorted({match[0] for match in _LOOKED_UP.finditer(text)})
    names = {name: "_" + name.replace(".", "_") for name in used}
    text = _LOOKED_UP.sub(lambda match: names[match[0]], text)
    return _LOOK_UP.format(names=", ".join(names.values()), globals=", ".join(names)) + text


_PROLOGUE = """#!lua name={library}
-- Generated from lua/{library}/ and lua/lib/; do not edit. Regenerate with: python tools/bundle_lua.py

local modules = {{}}

local function require(name)
  return modules[name]
end

"""

_LOOKED_UP = re.compile(
    r"(?<![\w.:\"'`])(?:redis\.p?call\b|(?:string|table|math|cjson)\.(?!huge\b|null\b)[a-z_]+\b"
    r"|(?:ipairs|pairs|tonumber|tostring|type|unpack|pcall|error|next|select)(?=[(]))"
)
"""What a function of a library looks up: names of the server and of Lua as the sources use them."""

_LOOK_UP = """
local {names}

local function look_up()
  {names} = {globals}
end
"""

_LENIENT = """
--- Refuse a call whose key or argument is absent or no number, before anything is written.
local function missing(fname, word)
  error("ERR {prefix}" .. fname .. ": '" .. word .. "' is missing or malformed", 0)
end

--- A number; nil when the word is not one or is absent. Lua would take `nan` and `inf` for numbers.
local function numeric(word)
  local number = tonumber(word)
  return number and number - number == 0 and number or nil
end

--- What every key of the queue begins with, from a key whose own name comes last.
local function queue_of(fname, key, name)
  if key:sub(-#name) ~= name then
    error("ERR {prefix}" .. fname .. ": the key '" .. key .. "' must end in '" .. name .. "'", 0)
  end
  return key:sub(1, -#name - 1)
end
"""

_STRICT = """
--- Refuse a call, before anything is written.
local function refuse(fname, why)
  error({{ err = "OQ_BAD_ARGUMENT {prefix}" .. fname .. ": " .. why }})
end

local function count_words(fname, keys, keys_wanted, words, words_wanted)
  if keys ~= keys_wanted or words ~= words_wanted then
    refuse(fname, ("takes %d keys and %.0f arguments, not %d and %d"):format(keys_wanted, words_wanted, keys, words))
  end
end

local last_word, last_number

--- A whole number from 0 to 2^53. The last one is kept: times and limits repeat within a call.
local function whole(word, fname, name)
  if word == "0" then
    return 0
  elseif word and word == last_word then
    return last_number
  end
  local number = word and word:find("^%d+$") and tonumber(word)
  if not number or number > 9007199254740992 then
    refuse(fname, "'" .. name .. "' is not a whole number from 0 to 2^53")
  end
  last_word, last_number = word, number
  return number
end

local function flag(word, fname, name)
  if word ~= "0" and word ~= "1" then
    refuse(fname, "'" .. name .. "' is neither 0 nor 1")
  end
  return word == "1"
end

--- What every key of the queue begins with, from a key whose own name comes last.
local function queue_of(fname, key, name)
  if key:sub(-#name) ~= name then
    refuse(fname, "the key '" .. key .. "' does not end in '" .. name .. "'")
  end
  return key:sub(1, -#name - 1)
end
"""


def in_order(contracts: list[Contract], modules: Mapping[str, str], *needed: str) -> list[str]:
    """List the modules that are needed, each after those it needs itself."""
    order: list[str] = []

    def visit(name: str, needed_by: str) -> None:
        if name in order:
            return
        if name not in modules:
            raise HeaderError(f"{needed_by}: there is no module lua/lib/{name}.lua")
        for _, needed in _REQUIRE.findall(modules[name]):
            visit(needed, name)
        order.append(name)

    for name in needed:
        visit(name, "the library")
    for contract in contracts:
        for _, name in _REQUIRE.findall(contract.body + "\n"):
            visit(name, contract.name)
    return order


def _function(contract: Contract, prefix: str, *, strict: bool) -> str:
    body = contract.body + "\n"
    requires = "".join(f"  {match[0]}" for match in _REQUIRE.finditer(body))
    body = _REQUIRE.sub("", body).strip("\n")
    unpacked = _Unpacking(contract, body, strict=strict).lines()
    # `queue` is derived from a key, and from the job's id; how many keys there are is checked with the arguments.
    lines = [*unpacked, *_queue_line(contract, body)]
    keys = _key_lines(contract, body)
    lines = [*lines, *keys] if strict else [*_key_count(contract), *keys, *lines]
    unpack = "".join(f"    {line}\n" for line in lines)
    indented = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    # One table for all calls: a function's record is done with when the function returns.
    records = dict.fromkeys(argument.record for argument in contract.arguments if argument.record)
    requires += "".join(f"  local {record} = {{}}\n" for record in records)
    words = "KEYS, ARGV" if "ARGV" in unpack else "KEYS" if "KEYS" in unpack else ""
    look_up = "    if not _redis_call then\n      look_up()\n    end\n"
    callback = f"function({words})\n{look_up}{unpack}{indented}  end"
    registered = f'("{prefix}{contract.name}", {callback})'
    if contract.flags:
        registered = (
            f'{{ function_name = "{prefix}{contract.name}", flags = {{ "{contract.flags}" }}, callback = {callback} }}'
        )
    return f"do -- {contract.name}\n{requires}  redis.register_function{registered}\nend\n"


def _uses(body: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", body) is not None


def _queue_line(contract: Contract, body: str) -> Iterator[str]:
    if not contract.queue or not _uses(body, "queue"):
        return
    name, checked = contract.queue.rstrip("!"), contract.queue.endswith("!")
    position = next((n for n, key in enumerate(contract.keys, 1) if key.name == name), None)
    if position is None:
        yield f"local queue = {name}"
        return
    key = f"KEYS[{position}]"
    record = next((argument.record for argument in contract.arguments if argument.name == "job_id"), None)
    job_id = f"{record}.job_id" if record else "job_id"
    if checked:
        own = f'"job:" .. {job_id}' if name == "job" else f'":{name}"'
        yield f'local queue = queue_of("{contract.name}", {key}, {own})' + ("" if name == "job" else ' .. ":"')
    elif name == "job":
        yield f"local queue = {key}:sub(1, -#{job_id} - 5)"
    else:
        yield f"local queue = {key}:sub(1, -{len(name) + 1})"


def _key_count(contract: Contract) -> Iterator[str]:
    required = [key.name for key in contract.keys if not key.optional]
    if required:
        yield f"if #KEYS < {len(required)} then"
        yield f'  missing("{contract.name}", "{required[-1]}")'
        yield "end"


def _key_lines(contract: Contract, body: str) -> Iterator[str]:
    for position, key in enumerate(contract.keys, 1):
        if _uses(body, f"{key.name}_key"):
            yield f"local {key.name}_key = KEYS[{position}]"


def _item_key(contract: Contract, key: Key, position: str, *, strict: bool) -> str:
    return f"KEYS[{position}]" + ("" if strict else f' or missing("{contract.name}", "{key.name}")')


@dataclass
class _Unpacking:
    """Writes the lines that turn the words of a call into named locals."""

    contract: Contract
    body: str
    strict: bool
    offset: str = ""
    """What the lists passed so far add to a position."""
    checked: bool = False

    def lines(self) -> Iterator[str]:
        for index, argument in enumerate(self.contract.arguments):
            yield from self._lists(index)
            if argument.record:
                yield f"{argument.record}.{argument.name} = {self._value(argument, f'{index + 1}{self.offset}')}"
            elif argument.repeats:
                yield from self._rest(argument, index)
            else:
                yield from self._argument(argument, index)
        yield from self._lists(len(self.contract.arguments))
        yield from self._word_count()

    def _argument(self, argument: Argument, index: int) -> Iterator[str]:
        contract = self.contract
        source = (contract.queue or "").rstrip("!")
        for_queue = _uses(self.body, "queue") and argument.name == {"job": "job_id"}.get(source, source)
        if argument.counts or for_queue or _uses(self.body, argument.name):
            yield f"local {argument.name} = {self._value(argument, f'{index + 1}{self.offset}')}"
        elif not argument.what.startswith("ignored"):
            raise HeaderError(f"{contract.name}: the argument {argument.name} is declared but not used")

    def _rest(self, argument: Argument, index: int) -> Iterator[str]:
        yield from self._word_count()
        yield f"local {argument.name} = {{}}"
        yield f"for index = 1, {self.contract.counter(argument.name).name} do"
        yield f"  {argument.name}[index] = {self._value(argument, f'{index}{self.offset} + index')}"
        yield "end"

    def _lists(self, index: int) -> Iterator[str]:
        for items in self.contract.lists:
            if items.after == index:
                yield from self._word_count()
                yield from self._list(items, index)
                self.offset += f" + {len(items.arguments)} * #{items.name}"

    def _list(self, items: Repeated, index: int) -> Iterator[str]:
        keys, width = len(self.contract.keys), len(items.keys)
        yield f"local {items.name} = {{}}"
        yield f"for index = 1, {self.contract.counter(items.name).name} do"
        if items.keys:
            yield f"  local key = {keys} + (index - 1) * {width}"
        yield f"  local arg = {index}{self.offset} + (index - 1) * {len(items.arguments)}"
        yield f"  {items.name}[index] = {{"
        for number, key in enumerate(items.keys, 1):
            yield f"    {key.name}_key = {_item_key(self.contract, key, f'key + {number}', strict=self.strict)},"
        for number, argument in enumerate(items.arguments, 1):
            yield f"    {argument.name} = {self._value(argument, f'arg + {number}')},"
        yield "  }"
        yield "end"

    def _word_count(self) -> Iterator[str]:
        """Refuse a call with too few or too many words, as soon as the lengths of its lists are known."""
        if not self.strict or self.checked:
            return
        self.checked = True
        contract = self.contract
        words = [str(sum(not argument.repeats for argument in contract.arguments))]
        words += [f"{len(items.arguments)} * {contract.counter(items.name).name}" for items in contract.lists]
        words += [contract.counter(argument.name).name for argument in contract.arguments if argument.repeats]
        yield f'count_words("{contract.name}", #KEYS, {len(contract.keys)}, #ARGV, {" + ".join(words)})'

    def _value(self, argument: Argument, position: str) -> str:
        word, names = f"ARGV[{position}]", f'"{self.contract.name}", "{argument.name}"'
        number = argument.type in ("int", "number")
        if self.strict:
            if argument.type == "int":
                return f'{word} == "0" and 0 or whole({word}, {names})'
            return f"flag({word}, {names})" if argument.type == "flag" else word
        if argument.type == "flag":
            return f'{word} == "1"'
        if number:
            # Zeros are common, and to read one as a number costs as much as thirty instructions.
            absent = f'({word} or "0")' if argument.default == "0" else word
            word = f'{absent} == "0" and 0 or numeric({word})'
        if argument.maybe:
            return word if number else f'{word} or ""'
        if argument.default is None:
            return f"{word} or missing({names})"
        return f"{word} or {argument.default}" if number else f'{word} or "{argument.default}"'
