"""Writes one function library: modules wrapped as functions, then each server function behind its unpacked words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lua_header import Argument, Contract, HeaderError, Key, Repeated

__all__ = ["write_library"]

_REQUIRE = re.compile(r'^local (\w+) = require\("(\w+)"\)\n', re.M)


def write_library(library: str, prefix: str, contracts: list[Contract], modules: Mapping[str, str]) -> str:
    """Write the library's text, ready for ``FUNCTION LOAD``.

    Raises:
        HeaderError: A function does not use an argument it declares, or a module is missing.
    """
    wanted = _in_order(contracts, modules)
    parts = [_PROLOGUE.format(library=library, prefix=prefix)]
    parts.extend(f"modules.{name} = (function()\n{modules[name].strip()}\nend)()\n" for name in wanted)
    parts.extend(_function(contract, prefix) for contract in contracts)
    return "\n".join(parts)


_PROLOGUE = """#!lua name={library}
-- Generated from lua/{library}/ and lua/lib/; do not edit. Regenerate with: python tools/bundle_lua.py

local modules = {{}}

local function require(name)
  return modules[name]
end

--- Refuse a call whose key or argument is absent or no number, before anything is written.
local function missing(fname, word)
  error("ERR {prefix}" .. fname .. ": '" .. word .. "' is missing or malformed", 0)
end

--- What every key of the queue begins with, from a key whose own name comes last.
local function queue_of(fname, key, name)
  if key:sub(-#name) ~= name then
    error("ERR {prefix}" .. fname .. ": the key '" .. key .. "' must end in '" .. name .. "'", 0)
  end
  return key:sub(1, -#name - 1)
end
"""


def _in_order(contracts: list[Contract], modules: Mapping[str, str]) -> list[str]:
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

    for contract in contracts:
        for _, name in _REQUIRE.findall(contract.body + "\n"):
            visit(name, contract.name)
    return order


def _function(contract: Contract, prefix: str) -> str:
    body = contract.body + "\n"
    requires = "".join(f"  {match[0]}" for match in _REQUIRE.finditer(body))
    body = _REQUIRE.sub("", body).strip("\n")
    # `queue` is derived from a key, and from the job's id, so it comes last.
    lines = [*_key_lines(contract, body), *_argument_lines(contract, body), *_queue_line(contract, body)]
    unpack = "".join(f"    {line}\n" for line in lines)
    indented = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    return (
        f"do -- {contract.name}\n{requires}"
        f'  redis.register_function("{prefix}{contract.name}", function(KEYS, ARGV)\n{unpack}{indented}  end)\nend\n'
    )


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
    if checked:
        own = '"job:" .. job_id' if name == "job" else f'":{name}"'
        yield f'local queue = queue_of("{contract.name}", {key}, {own})' + ("" if name == "job" else ' .. ":"')
    elif name == "job":
        yield f"local queue = {key}:sub(1, -#job_id - 5)"
    else:
        yield f"local queue = {key}:sub(1, -{len(name) + 1})"


def _key_lines(contract: Contract, body: str) -> Iterator[str]:
    for position, key in enumerate(contract.keys, 1):
        if _uses(body, f"{key.name}_key"):
            yield f"local {key.name}_key = {_key_value(contract, key, str(position))}"


def _key_value(contract: Contract, key: Key, position: str) -> str:
    return f"KEYS[{position}]" + ("" if key.optional else f' or missing("{contract.name}", "{key.name}")')


def _argument_lines(contract: Contract, body: str) -> Iterator[str]:
    record: list[str] = []
    offset = ""
    queue_needs_job = contract.queue is not None and contract.queue.startswith("job") and _uses(body, "queue")
    for position, argument in enumerate(contract.arguments, 1):
        repeated = contract.repeated
        if repeated and argument.counts and argument.counts != repeated.name:
            yield from _repeated(contract, repeated, position)
            offset = f" + {len(repeated.arguments)} * #{repeated.name}"
        value = _value(contract, argument, f"{position}{offset}")
        following = contract.arguments[position] if position < len(contract.arguments) else None
        if argument.record:
            record.append(f"  {argument.name} = {value},")
            if following is None or following.record is None:
                yield f"local {argument.record} = {{"
                yield from record
                yield "}"
        elif argument.repeats:
            yield f"local {argument.name} = {{}}"
            counter = next(a.name for a in contract.arguments if a.counts == argument.name)
            yield f"for index = 1, {counter} do"
            yield f"  {argument.name}[index] = ARGV[{position - 1}{offset} + index]"
            yield "end"
        elif argument.counts or _uses(body, argument.name) or (queue_needs_job and argument.name == "job_id"):
            yield f"local {argument.name} = {value}"
        elif not argument.what.startswith("ignored") and argument.name != contract.queue:
            raise HeaderError(f"{contract.name}: the argument {argument.name} is declared but not used")


def _repeated(contract: Contract, repeated: Repeated, position: int) -> Iterator[str]:
    counter = next(a.name for a in contract.arguments if a.counts == repeated.name)
    keys, width = len(contract.keys), len(repeated.keys)
    yield f"local {repeated.name} = {{}}"
    yield f"for index = 1, {counter} do"
    yield f"  local key, arg = {keys} + (index - 1) * {width}, {position - 1} + (index - 1) * {len(repeated.arguments)}"
    yield f"  {repeated.name}[index] = {{"
    for number, key in enumerate(repeated.keys, 1):
        yield f"    {key.name}_key = {_key_value(contract, key, f'key + {number}')},"
    for number, argument in enumerate(repeated.arguments, 1):
        yield f"    {argument.name} = {_value(contract, argument, f'arg + {number}')},"
    yield "  }"
    yield "end"


def _value(contract: Contract, argument: Argument, position: str) -> str:
    word = f"ARGV[{position}]"
    if argument.type == "flag":
        return f'{word} == "1"'
    number = argument.type in ("int", "number")
    if number:
        word = f"tonumber({word})"
    if argument.maybe:
        return word
    if argument.default is None:
        return f'{word} or missing("{contract.name}", "{argument.name}")'
    return f"{word} or {argument.default}" if number else f'{word} or "{argument.default}"'
