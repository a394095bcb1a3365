"""The page about the function libraries, from the contracts at the heads of the Lua files."""

from __future__ import annotations

from pathlib import Path

from lua_header import Argument, Contract, Key, read_contract

__all__ = ["functions"]

_LUA = Path(__file__).parents[1] / "lua"
_LIBRARIES = {
    "glidemq": (
        "glidemq_",
        "The wire's own functions, shared with Node. Any of them may at any time be the wire's own implementation, "
        "which a client there loads in place of ours.",
    ),
    "orchestration_queue_1": ("oq1_", "What the wire lacks, on the same keys."),
    "chasquimq": (
        "chasquimq_",
        "What ChasquiMQ's own engine needs Redis 8.6 for, on ChasquiMQ's keys. Only its clients load it.",
    ),
    "qless": (
        "qless ",
        "One function, `qless`, that takes a command, the time in seconds and arguments, as qless's own script does, "
        "and no keys. Only its clients load it.",
    ),
    "qless/older": (
        "qless_",
        "The calls of qless's older form, one function each, in the library `qless`: a queue's bare name is the key.",
    ),
}


def functions() -> str:
    """Return the page."""
    lines = [
        "# The function libraries",
        "",
        "All are small Lua modules in `lua/`; `oq library dump` prints the text that is loaded, `oq library status`",
        "says what a server has. Clients and workers call these functions for you. Keys come first, in this order,",
        "then the arguments.",
        "",
    ]
    for library, (prefix, what) in _LIBRARIES.items():
        lines += [f"## Library `{library}`", "", what, ""]
        for path in sorted((_LUA / library).glob("*.lua")):
            lines += _function(read_contract(path), prefix)
    return "\n".join(lines)


def _function(contract: Contract, prefix: str) -> list[str]:
    rows = [_key(key) for key in contract.keys] + [_argument(argument) for argument in contract.arguments]
    for each in contract.lists:
        rows.append(f"| *for each of the {each.name}* | | {each.what} |")
        rows += [_key(key) for key in each.keys] + [_argument(argument) for argument in each.arguments]
    table = ["| Name | Kind | |", "|---|---|---|", *rows, ""] if rows else []
    errors = [f"**Refuses**: {'; '.join(contract.errors)}.  "] if contract.errors else []
    return [
        f"### `{prefix}{contract.name}`",
        "",
        contract.summary,
        "",
        *table,
        f"**Returns** {contract.returns}  ",
        *errors,
        f"**Cost**: {contract.cost}",
        "",
    ]


def _key(key: Key) -> str:
    return f"| `{key.name}` | key{', may be left out' if key.optional else ''} | {_cell(key.what)} |"


def _argument(argument: Argument) -> str:
    facts = [argument.type]
    if argument.default is not None:
        facts.append(f"default `{argument.default}`" if argument.default else "may be empty")
    if argument.repeats:
        facts.append("repeated")
    return f"| `{argument.name}` | {', '.join(facts)} | {_cell(argument.what)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
