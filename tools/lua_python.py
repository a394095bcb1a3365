"""Writes the Python call layer: one function per server function, from the contracts in the Lua headers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lua_header import Argument, Contract, Key, Repeated

__all__ = ["snake", "write_module"]

_PYTHON_TYPES = {"text": "str", "bytes": "bytes", "json": "str", "int": "int", "number": "float", "flag": "bool"}
_DEFAULTS = {"text": '"{}"', "json": '"{}"', "int": "{}", "number": "{}"}
_WIDTH = 120


def write_module(library: str, prefix: str, contracts: Iterable[Contract]) -> str:
    """Write the whole module, in the layout that ``ruff format`` gives it."""
    contracts = list(contracts)
    items = {item.item: item for c in contracts for item in c.lists}
    names = sorted([snake(c.name) for c in contracts] + list(items), key=_order)
    parts = [_module_head(library, contracts)]
    parts.append("__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n")
    parts.extend(_item_class(item) for item in items.values())
    parts.extend(_function(c, prefix) for c in contracts)
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts).replace("\n\n\n__all__", "\n\n__all__", 1)


_MODULE = '''"""The server functions of the library `{library}`, a call each.

Generated from the headers in lua/{library}/; do not edit. Regenerate with: python tools/bundle_lua.py
"""

from __future__ import annotations

{imports}
from orchestration_queue.protocol.call import Call
{uses}'''


def _module_head(library: str, contracts: list[Contract]) -> str:
    imports = ""
    if any(c.lists or any(a.repeats for a in c.arguments) for c in contracts):
        imports += "from collections.abc import Sequence\n"
    if any(c.lists for c in contracts):
        imports += "from typing import NamedTuple\n"
    keys = [key for c in contracts for key in (*c.keys, *(key for items in c.lists for key in items.keys))]
    uses = "from orchestration_queue.protocol.keys import QueueKeys\n" if any(key.of_queue for key in keys) else ""
    return _MODULE.format(library=library, imports=imports, uses=uses).replace("\n\n\n", "\n\n")


def snake(name: str) -> str:
    """``completeAndFetchNext`` as ``complete_and_fetch_next``."""
    return re.sub(r"(?=[A-Z])", "_", name).lower()


def _order(name: str) -> tuple[bool, str]:
    return (name[0].islower(), name)


def _function(contract: Contract, prefix: str) -> str:
    arguments = [argument for argument in contract.arguments if not argument.counts]
    owner = ["keys: QueueKeys"] if any(key.of_queue for key in contract.keys) else []
    parameters = [
        f"{key.name}_key: {'str | None = None' if key.optional else 'str'}" for key in contract.keys if not key.of_queue
    ]
    parameters += [f"{items.name}: Sequence[{items.item}] = ()" for items in contract.lists]
    parameters += [_parameter(argument) for argument in arguments]
    lines = [f"def {snake(contract.name)}() -> Call:"]
    if owner or parameters:
        words = (f"    {parameter}," for parameter in [*owner, *(["*"] if parameters else []), *parameters])
        lines = [f"def {snake(contract.name)}(", *words, ") -> Call:"]
    lines.extend(_docstring(contract, arguments))
    lines.extend(["    return Call(", f'        "{prefix}{contract.name}",'])
    lines.extend(_tuple(_key_words(contract)))
    lines.extend(_tuple(_argument_words(contract)))
    lines.append("        is_function=True,")
    if contract.flags == "no-writes":
        lines.append("        only_reads=True,")
    lines.append("    )")
    return "\n".join(lines) + "\n"


def _parameter(argument: Argument) -> str:
    kind = _PYTHON_TYPES[argument.type]
    if argument.repeats:
        return f"{argument.name}: Sequence[{kind}] = ()"
    if argument.default is None:
        return f"{argument.name}: {kind}"
    return f"{argument.name}: {kind} = {_default(argument.type, argument.default)}"


def _default(kind: str, default: str) -> str:
    return str(default == "1") if kind == "flag" else _DEFAULTS[kind].format(default)


def _docstring(contract: Contract, arguments: list[Argument]) -> Iterator[str]:
    yield from textwrap.wrap(f'"""{contract.summary}', _WIDTH, initial_indent="    ", subsequent_indent="    ")
    yield ""
    if contract.keys or arguments:
        yield "    Args:"
        yield from _key_entries(contract.keys)
        for items in contract.lists:
            yield from _entry(items.name, f"each {items.what}")
        for argument in arguments:
            yield from _entry(argument.name, argument.what)
        yield ""
    kind, _, what = contract.returns.partition(" ")
    yield "    Returns:"
    yield from _wrapped(f"The call. Its reply ({kind}): {what.strip()}.", "        ")
    if contract.errors:
        yield ""
        yield from _wrapped(f"The server refuses it when {'; or when '.join(contract.errors)}.", "    ")
    yield ""
    yield from _wrapped(f"Cost: {contract.cost}.", "    ")
    yield '    """'


def _key_entries(keys: Sequence[Key]) -> Iterator[str]:
    if named := [f"`{key.name}`" for key in keys if key.of_queue]:
        yield from _entry("keys", f"the queue, for its {', '.join(named)}")
    for key in keys:
        if not key.of_queue:
            yield from _entry(f"{key.name}_key", key.what)


def _entry(name: str, what: str) -> list[str]:
    return _wrapped(f"{name}: {what[:1].upper()}{what[1:]}.", "        ", "            ")


def _wrapped(words: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest)


def _key_words(contract: Contract) -> Iterator[str]:
    for key in contract.keys:
        name = _key_word(key)
        yield f"*(() if {name} is None else ({name},))" if key.optional else name
    for items in contract.lists:
        if items.keys:
            yield _flattened(items, [f"item.{_key_word(key)}" for key in items.keys])


def _key_word(key: Key) -> str:
    return f"keys.{key.name}" if key.of_queue else f"{key.name}_key"


def _argument_words(contract: Contract) -> Iterator[str]:
    for position in range(len(contract.arguments) + 1):
        for items in contract.lists:
            if items.after == position:
                yield _flattened(items, [_word(item, f"item.{item.name}") for item in items.arguments])
        if position < len(contract.arguments):
            yield _word(contract.arguments[position], contract.arguments[position].name)


def _word(argument: Argument, name: str) -> str:
    if argument.counts:
        return f"len({argument.counts})"
    if argument.repeats:
        return f"*{name}"
    return f"int({name})" if argument.type == "flag" else name


def _flattened(repeated: Repeated, words: list[str]) -> str:
    if len(words) == 1:
        return f"*[{words[0]} for item in {repeated.name}]"
    line = f"*[word for item in {repeated.name} for word in ({', '.join(words)})]"
    if len(line) + 13 <= _WIDTH:
        return line
    body = "".join(f"                {word},\n" for word in words)
    return (
        f"*[\n                word\n                for item in {repeated.name}\n                for word in (\n"
        + body.replace("                ", "                    ")
        + "                )\n            ]"
    )


def _tuple(words: Iterable[str]) -> Iterator[str]:
    items = list(words)
    if not items:
        yield "        (),"
        return
    if len(items) == 1:
        yield f"        ({items[0]},),"
        return
    yield "        ("
    for item in items:
        yield f"            {item},"
    yield "        ),"


def _item_class(repeated: Repeated) -> str:
    lines = [f"class {repeated.item}(NamedTuple):"]
    lines.extend([f'    """{repeated.what[:1].upper()}{repeated.what[1:]}.', "", "    Attributes:"])
    lines.extend(_key_entries(repeated.keys))
    for argument in repeated.arguments:
        lines.extend(_entry(argument.name, argument.what))
    lines.extend(['    """', ""])
    if any(key.of_queue for key in repeated.keys):
        lines.append("    keys: QueueKeys")
    lines.extend(f"    {key.name}_key: str" for key in repeated.keys if not key.of_queue)
    # A tuple's order is the wire's, and it can leave out only what no other field follows.
    last = max((place for place, argument in enumerate(repeated.arguments) if argument.default is None), default=-1)
    for place, argument in enumerate(repeated.arguments):
        lines.append(f"    {_parameter(argument if place > last else replace(argument, default=None))}")
    return "\n".join(lines) + "\n"
